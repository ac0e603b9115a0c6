// The parts of the page below the workers: shards, layers, checkpoints,
// tables, events. Each is one function that shows its part of a report.

import { fillBar, find, setHidden, setState, setText, Table } from "./dom.js";
import {
  bytes,
  bytesPerSecond,
  clock,
  count,
  digits,
  list,
  longTime,
  NOTHING,
  number,
  percent,
  plural,
  rate,
  seconds,
  shortPercent,
  text,
} from "./values.js";

const SHARDS_MAX = 256; // rows; beyond that nobody reads a table
const WAKE_LATE_ALARM = 0.005; // seconds
const MEMORY_ALARM = 0.9; // of what a task may use
const STALL_ALARM = 0.01; // of the time

// How a task fares on its host, for the tables of workers and of shards.
export const HOST_COLUMNS = [
  {
    title: "CPU",
    help: "processors that it uses, of those that it may use",
    numeric: true,
    value: ({ host_load: host }) =>
      `${digits(host?.cpu_seconds_per_second, 2)} of ` +
      digits(host?.processors, 2),
  },
  {
    title: "Wakes late",
    help: "how long one of its threads waits for a processor, mean",
    numeric: true,
    value: ({ host_load: host }) => seconds(host?.wake_late_seconds),
    alarm: ({ host_load: host }) =>
      number(host?.wake_late_seconds) > WAKE_LATE_ALARM,
  },
  {
    title: "Memory",
    help: "what it uses, and its share of what it may use",
    numeric: true,
    value: ({ host_load: host }) =>
      bytes(host?.resident_bytes) +
      (number(host?.memory_bytes_max) > 0
        ? ` (${shortPercent(host.resident_bytes / host.memory_bytes_max)})`
        : ""),
    alarm: ({ host_load: host }) =>
      number(host?.resident_bytes) >
        MEMORY_ALARM * number(host?.memory_bytes_max, Infinity) &&
      number(host?.memory_bytes_max) > 0,
  },
  {
    title: "Stalls",
    help: "share of the time in which it stood still for memory",
    numeric: true,
    value: ({ host_load: host }) => percent(host?.memory_stall_share),
    alarm: ({ host_load: host }) =>
      number(host?.memory_stall_share) > STALL_ALARM,
  },
];

// A column of bars beside each other, the longest of them full.
function barColumn(title, help, get, say) {
  return {
    title,
    help,
    numeric: true,
    fill(cell, shard) {
      const most = number(shard.most?.[title]);
      fillBar(cell, most > 0 ? number(get(shard)) / most : 0, say(get(shard)));
    },
    get,
  };
}

const SHARD_BARS = [
  barColumn("Apply", "to apply a block, mean", (s) => s.apply_seconds, seconds),
  barColumn("Park", "a pull that waits, mean", (s) => s.park_seconds, seconds),
  barColumn("Updates/s", "", (s) => s.updates_per_second, rate),
  barColumn(
    "Received",
    "",
    (s) => s.bytes_received_per_second,
    bytesPerSecond,
  ),
  barColumn("Sent", "", (s) => s.bytes_sent_per_second, bytesPerSecond),
];

// Bars of the host's columns, of what the task may use.
function hostBar(column, share) {
  return {
    ...column,
    fill(cell, shard) {
      const alarm = column.alarm?.(shard) ?? false;
      fillBar(cell, share(shard), (alarm ? "\u25b2 " : "") +
        column.value(shard));
      cell.classList.toggle("alarm", alarm);
    },
  };
}

function ratio(part, whole) {
  return number(whole) > 0 ? number(part) / whole : 0;
}

const [CPU, WAKE, MEMORY, STALL] = HOST_COLUMNS;
const SHARD_COLUMNS = [
  { title: "ps", value: (shard) => `${shard.cause}${shard.index}` },
  {
    title: "Address",
    kind: "place",
    value: (shard) => text(shard.address),
  },
  {
    title: "State",
    fill(cell, shard) {
      if (cell.firstElementChild === null) {
        cell.append(document.createElement("span"));
      }
      setState(cell.firstElementChild, text(shard.state));
    },
  },
  ...SHARD_BARS,
  hostBar(CPU, ({ host_load: host }) =>
    ratio(host?.cpu_seconds_per_second, host?.processors),
  ),
  hostBar(WAKE, ({ host_load: host }) =>
    ratio(host?.wake_late_seconds, 2 * WAKE_LATE_ALARM),
  ),
  hostBar(MEMORY, ({ host_load: host }) =>
    ratio(host?.resident_bytes, host?.memory_bytes_max),
  ),
  STALL,
  {
    title: "Parked",
    help: "pulls that wait now",
    numeric: true,
    value: (shard) => count(shard.parked_pulls),
  },
  {
    title: "Early",
    help: "bytes of contributions that came before their turn",
    numeric: true,
    value: (shard) => bytes(shard.out_of_order_bytes),
  },
  {
    title: "Calls",
    help: "streams of workers and calls under way",
    numeric: true,
    value: (shard) => count(shard.open_calls),
  },
  { title: "Version", numeric: true, value: (shard) => count(shard.version) },
];

const LAYER_COLUMNS = [
  { title: "Layer", value: (layer) => text(layer.name) },
  {
    title: "Wait",
    numeric: true,
    fill: (cell, layer) =>
      fillBar(
        cell,
        ratio(layer.wait_share, layer.most),
        percent(layer.wait_share),
      ),
  },
];

const TABLE_COLUMNS = [
  { title: "Table", value: (table) => text(table.name) },
  { title: "Rows", numeric: true, value: (table) => count(table.rows) },
  { title: "Size", numeric: true, value: (table) => bytes(table.bytes) },
];

const EVENT_COLUMNS = [
  { title: "Time", value: (event) => clock(event.unix_seconds) },
  {
    title: "Event",
    value: (event) => text(event.text),
    alarm: (event) => event.warning === true,
  },
];

export class Sections {
  constructor() {
    const table = (id, columns) => new Table(find(id), columns);
    this.shards = table("shard-table", SHARD_COLUMNS);
    this.layers = table("layer-table", LAYER_COLUMNS);
    this.tables = table("table-table", TABLE_COLUMNS);
    this.events = table("event-table", EVENT_COLUMNS);
  }

  show(report) {
    this.#showShards(report);
    this.#showLayers(report);
    this.#showCheckpoint(report.checkpoint ?? {});
    const tables = list(report.table);
    setHidden(find("tables"), tables.length === 0);
    this.tables.fill(tables);
    const events = list(report.event).slice().reverse();
    setHidden(find("no-event"), events.length > 0);
    setHidden(find("event-table"), events.length === 0);
    this.events.fill(events);
  }

  #showShards(report) {
    const shards = list(report.shard);
    const most = {};
    for (const { title, get } of SHARD_BARS) {
      most[title] = Math.max(0, ...shards.map((s) => number(get(s))));
    }
    const lost = shards.filter((shard) => shard.state === "lost").length;
    setText(
      find("shard-summary"),
      plural(shards.length, "shard") +
        (lost > 0 ? `, \u25b2 ${count(lost)} lost` : "") +
        (shards.length > SHARDS_MAX ? `, of which the first are shown` : ""),
    );
    setHidden(find("shard-table"), shards.length === 0);
    this.shards.fill(
      shards.slice(0, SHARDS_MAX).map((shard) => ({
        ...shard,
        most,
        cause: report.cause?.task === `ps/${shard.index}` ? "\u25b6 " : "",
      })),
    );
  }

  #showLayers(report) {
    const layers = list(report.layer);
    const most = Math.max(0, ...layers.map((l) => number(l.wait_share)));
    setHidden(find("no-layer"), layers.length > 0);
    setHidden(find("layer-table"), layers.length === 0);
    this.layers.fill(layers.map((layer) => ({ ...layer, most })));
  }

  #showCheckpoint(saved) {
    const some = text(saved.newest) !== "";
    setText(find("saved-name"), some ? saved.newest : "none yet");
    setText(
      find("saved-age"),
      some ? longTime(saved.age_seconds) : NOTHING,
    );
    setText(
      find("saved-took"),
      some ? seconds(saved.last_seconds) : NOTHING,
    );
    setText(find("saved-bytes"), some ? bytes(saved.bytes) : NOTHING);
    const failures = number(saved.failures);
    setText(
      find("saved-failures"),
      (failures > 0 ? "\u25b2 " : "") + count(failures),
    );
    find("saved-failures").classList.toggle("alarm", failures > 0);
    setText(find("saved-held"), `${percent(saved.hold_share)} of the time`);
  }
}
