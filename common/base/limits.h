// What a peer may cost this process at most.
//
// A peer is whoever can connect, or whose file is read: a mistaken or hostile
// one is refused at these bounds, and no other peer notices it. Each constant
// says what it bounds and why by this number.
#ifndef COMMON_BASE_LIMITS_H_
#define COMMON_BASE_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weir {

// -------------------------------------------------------------- any peer

// Bytes of a peer's name for something, in a log, on a terminal or in an error:
// a host, a variable, a job.
inline constexpr size_t kPeerNameBytesMax = 200;

// The same for a whole sentence of a peer, such as the message of an error,
// which may name several paths.
inline constexpr size_t kPeerMessageBytesMax = 2000;

// ------------------------------------------------------------ a file of data

// How far a packed file of data may unpack: to so many times its own bytes, and
// this many bytes more. Text of numbers packs to a third or a tenth; a file of
// a kilobyte that unpacks to a terabyte is an attack, or a mistake.
inline constexpr int64_t kUnpackedRatioMax = 64;
inline constexpr int64_t kUnpackedBytesMax = int64_t{1} << 30;

// ---------------------------------------------------------- connections

// Connections of a server: some for people and for tasks that connect anew, and
// for each worker as many as --channels_per_peer may open, for blocks and for
// rows. A server that was not told of the workers takes the last number.
inline constexpr int kConnectionsBase = 64;
inline constexpr int kConnectionsPerWorker = 32;
inline constexpr int kConnectionsMax = 4096;

// Calls that a connection may begin and drop within a second before they have
// sent anything. Each costs the server some 10 KiB until it is cleared away,
// and no client of Weir does so at all.
inline constexpr int kEmptyCallsPerSecond = 200;

// Calls of one connection at a time. A worker has a few.
inline constexpr int kStreamsPerConnection = 64;

// How long a handshake may take.
inline constexpr std::chrono::milliseconds kHandshakeWait{5000};

// How long a connection may have no call under way.
inline constexpr std::chrono::minutes kConnectionIdle{10};

// How old a connection may become where certificates come from files, so that
// one that expired or was taken back is out after this time; and how long its
// calls may go on after that. A client connects anew and repeats what was cut.
inline constexpr std::chrono::hours kConnectionAge{1};
inline constexpr std::chrono::seconds kConnectionGrace{60};

// ------------------------------------------------------- the admin port

// Bytes of a request's head. Browsers send all cookies of a host with it, those
// of other programs on "localhost" among them.
inline constexpr size_t kAdminHeadBytesMax = 8192;

// How long a client may take to send that head, and then to take the answer.
inline constexpr std::chrono::milliseconds kAdminReadWait{1000};
inline constexpr std::chrono::milliseconds kAdminWriteWait{2000};

// Connections at once, so that some clients that hang hold up nobody else, and
// those that wait for one to end; the kernel refuses the rest. A browser opens
// six.
inline constexpr size_t kAdminConnectionsMax = 16;
inline constexpr int kAdminBacklog = 16;

// What the port's one thread takes of a core in the long run, and at once after
// a rest, whatever is asked of it: together less than 5% over ten seconds. A
// page of metrics takes about a millisecond.
inline constexpr double kAdminCoreShare = 0.04;
inline constexpr std::chrono::milliseconds kAdminBurst{100};

// ---------------------------------------------------------- the audit log

// Lines about refusals in a second: enough to see who it is, and too few to
// fill a disk.
inline constexpr int kRefusalLinesPerSecond = 10;

// Identities whose calls are counted by name; the others are counted together.
inline constexpr size_t kCallerNamesMax = 256;

// ---------------------------------------------------------- shared memory

// Clients of a ps through shared memory at once; a further one is turned away
// and takes gRPC. Each costs two threads. A worker has one for every four
// processors, at most eight, or as many as --channels_per_peer says, and two
// more with tables. So 25 of them on a host of 32 processors fill the places.
inline constexpr size_t kShmSessionsMax = 256;

// How long a client may take to send its opening. It costs a thread until then;
// a client that is alive sends the opening as soon as it is connected.
inline constexpr std::chrono::milliseconds kShmOpeningWait{5000};

// Pieces of memory that one client may hand over. A worker has two for its
// gradients, and for other payloads as many as are on their way at once.
inline constexpr size_t kShmRegionsMax = 1024;

// Bytes of memory that one client may hand over beyond twice the size of the
// model. A worker hands over its gradients, as float32 and encoded, and up to
// 4 MiB for each of 256 other payloads that are on their way.
inline constexpr uint64_t kShmRegionBytesMax = uint64_t{1} << 30;

// ---------------------------------------------------------------- the chief

// Reports of contributions that the chief of a sync job keeps on either side of
// the newest step that is done: as many whole steps as fit, but 16 at least. A
// report takes about 100 bytes. Workers report several times a second, and one
// that is silent for longer than the fastest job needs for so many steps loses
// some points of the curve.
inline constexpr uint64_t kReportsAheadMax = uint64_t{1} << 18;
inline constexpr uint64_t kReportStepsMin = 16;

// Histograms in a message of the heartbeat: with TensorBoard's own 30 buckets
// so many variables take about 150 KiB, which is far below what the chief
// takes. Those of variables and contributions beyond the number are left out.
inline constexpr int kHistogramVariablesMax = 512;
inline constexpr int kHistogramBucketsMax = 30;

// Metrics that a program reports with one call, and names of metrics that a job
// has in all: each is a curve, and a key in every line of train.jsonl.
inline constexpr size_t kMetricsPerReportMax = 32;
inline constexpr size_t kMetricNamesMax = 128;
// Bytes of such a name.
inline constexpr size_t kMetricNameBytesMax = 64;

// Processes that had a slot before and are remembered, for each slot. One that
// is forgotten is still known by its generation, unless it never had any.
inline constexpr size_t kReplacedMax = 1024;

// Calls that wait for the chief's one thread, which takes some microseconds for
// each; a further one is refused. A job has one call for each worker at a time.
inline constexpr size_t kChiefInboxMax = 4096;

// Memory that gRPC may use in the chief for messages on their way, over all
// connections. The largest, a registration, has at most 4 MiB.
inline constexpr size_t kChiefWireBytesMax = size_t{64} << 20;

// ------------------------------------------------------------- timelines

// How long one trace may be. Longer ones would fill their bounds long before.
inline constexpr std::chrono::seconds kTraceMax{60};

// Events in one message of a trace; a message then has less than 1 MiB.
inline constexpr size_t kTraceEventsPerPart = 8192;

// What the chief keeps of all workers' timelines, in bytes of messages, and
// what it reckons one event takes. Each worker has the same share.
inline constexpr size_t kTraceBytesMax = size_t{64} << 20;
inline constexpr size_t kTraceEventBytes = 96;

// How long the chief waits for the timelines of its workers after the end.
inline constexpr std::chrono::seconds kTraceLateWait{10};

// ------------------------------------------------------- rows of tables

// Bytes of rows that a ps has gathered for one sender and that have not left
// yet. A client asks for at most 4 answers of 3 MiB ahead; as many again are
// for a stream that broke and has not been found dead.
inline constexpr int64_t kRowAnswerBytesPerSender = int64_t{32} << 20;
// The same for all senders together. A sender that holds nothing has room for
// one answer beyond it, so that nobody waits for another's reading.
inline constexpr int64_t kRowAnswerBytesMax = int64_t{256} << 20;

// Lookups of rows that may wait at a ps: of each slot, and of all readers
// together. A client asks for 4 ahead; the rest are of streams that broke.
inline constexpr int64_t kRowWaitsPerSlot = 256;
inline constexpr int64_t kRowWaitsOfReaders = 1024;
// Bytes of ids that the waiting lookups of one sender hold. The 4 lookups of a
// client hold 24 MiB where they are as large as may be and rows have one
// number.
inline constexpr int64_t kRowWaitBytesPerSender = int64_t{32} << 20;

// Bytes of the named lists of ids that a ps keeps for one slot. They hold three
// batches of 600,000 ids: the one that trains, the one that is fetched ahead,
// and the one before.
inline constexpr int64_t kListBytesPerSlot = int64_t{16} << 20;

// What one push of rows may hold while it comes in, where the job's
// out_of_order_bytes is less: the rows of a small job's batch must get in
// whatever the job keeps for later.
inline constexpr uint64_t kRowPushBytesMin = uint64_t{16} << 20;

// Hot rows that GetStatus names of each table, and for how long it tells them
// before it looks for them anew: a report needs no more, and each look visits
// every row.
inline constexpr int kHotRowsMax = 1000;
inline constexpr std::chrono::seconds kHotRowsKept{1};

// Memory for counting the ids of a table that have no row, on one ps. It counts
// 2^38 ids; the bound is there so that sums of sizes stay far below 2^63, and
// what a ps really takes is bounded by its memory.
inline constexpr int64_t kAdmissionFilterBytesMax = int64_t{1} << 40;

// Tickets for sessions of shared memory that a ps gave out and that were not
// used yet: a worker uses its own at once, so far fewer are out.
inline constexpr size_t kShmTicketsMax = 1024;

}  // namespace weir

#endif  // COMMON_BASE_LIMITS_H_
