// How the page writes into its document.
//
// Invariants
//   I1. What a report says is only ever text: nothing here makes HTML of it,
//       since names and messages come from peers.
//   I2. What is shown already is not touched again, and rows stay where they
//       are and take new contents. So a selection, the focus and the place
//       to which a reader scrolled survive an update.

export function find(id) {
  return document.getElementById(id);
}

// Makes an element with a class and contents: texts and elements.
export function make(name, className = "", ...contents) {
  const element = document.createElement(name);
  if (className !== "") element.className = className;
  element.append(...contents);
  return element;
}

// Makes an element's text this one. I1, I2.
export function setText(element, value) {
  const only = element.firstChild;
  if (only instanceof Text && only.nextSibling === null) {
    if (only.data !== value) only.data = value;
  } else if (value !== "" || only !== null) {
    element.textContent = value;
  }
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function setClass(element, value) {
  if (element.className !== value) element.className = value;
}

export function setHidden(element, hidden) {
  if (element.hidden !== hidden) element.hidden = hidden;
}

// Sets a CSS property through the object model, which the page's
// Content-Security-Policy permits; a style attribute would be refused.
export function setStyle(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) {
    element.style.setProperty(name, value);
  }
}

// Makes `parent` have `size` children, by adding new ones at the end or
// removing the last ones.
export function resize(parent, size, makeChild) {
  while (parent.childElementCount > size) parent.lastElementChild.remove();
  while (parent.childElementCount < size) {
    parent.append(makeChild(parent.childElementCount));
  }
}

// A symbol with its word, so that a state is never a colour alone.
const STATES = {
  absent: ["\u2715", "bad"],
  lost: ["\u2715", "bad"],
  failed: ["\u2715", "bad"],
  starting: ["\u25d0", "watch"],
  loaded: ["\u25d0", "watch"],
  waiting: ["\u25d0", "watch"],
  finishing: ["\u25d0", "good"],
  empty: ["\u25cb", "watch"],
  working: ["\u25cf", "good"],
  active: ["\u25cf", "good"],
  training: ["\u25cf", "good"],
  done: ["\u2713", "good"],
};

export function stateSymbol(state) {
  return (STATES[state] ?? ["?", "watch"])[0];
}

export function setState(element, state) {
  const [symbol, tone] = STATES[state] ?? ["?", "watch"];
  setText(element, state === "" ? "" : `${symbol} ${state}`);
  setClass(element, `state ${tone}`);
}

// A table whose columns are given once and whose rows are filled anew.
//
// A column is {title, help, kind, numeric, value(item) -> text,
// fill(cell, item), alarm(item) -> bool, sort}. Of value and fill one is there.
// An alarm shows a mark beside the text; `kind` is a class of the column.
function classOf(column) {
  return [column.numeric ? "number" : "", column.kind ?? ""].join(" ").trim();
}

export class Table {
  // REQUIRES: `table` is empty but for its caption.
  constructor(table, columns, onSort = null) {
    this.columns = columns;
    this.heads = columns.map((column) => this.#makeHead(column, onSort));
    this.body = make("tbody");
    table.append(make("thead", "", make("tr", "", ...this.heads)), this.body);
  }

  #makeHead(column, onSort) {
    const head = make("th", classOf(column));
    head.scope = "col";
    if (column.help) head.title = column.help;
    if (onSort !== null && column.sort) {
      const button = make("button", "sort", column.title);
      button.type = "button";
      button.addEventListener("click", () => onSort(column.sort));
      head.append(button);
    } else {
      head.append(column.title);
    }
    return head;
  }

  // Says by which column the rows are sorted.
  showOrder(sort, descending) {
    this.columns.forEach((column, i) => {
      if (!column.sort) return;
      const order = descending ? "descending" : "ascending";
      const here = column.sort === sort;
      setAttribute(this.heads[i], "aria-sort", here ? order : "none");
    });
  }

  #makeRow() {
    const row = make("tr");
    this.columns.forEach((column, i) => {
      const cell = make(i === 0 ? "th" : "td");
      if (i === 0) cell.scope = "row";
      cell.className = classOf(column);
      row.append(cell);
    });
    return row;
  }

  fill(items) {
    resize(this.body, items.length, () => this.#makeRow());
    items.forEach((item, i) => {
      const cells = this.body.children[i].children;
      this.columns.forEach((column, j) => {
        if (column.fill) {
          column.fill(cells[j], item);
          return;
        }
        const alarm = column.alarm?.(item) ?? false;
        setText(cells[j], (alarm ? "\u25b2 " : "") + column.value(item));
        cells[j].classList.toggle("alarm", alarm);
      });
    });
  }
}

// A bar behind a number: `share` of the cell's width, 0 to 1.
export function fillBar(cell, share, label) {
  if (cell.firstElementChild === null) {
    cell.append(make("span", "bar"), make("span", "bar-label", ""));
    cell.classList.add("has-bar");
  }
  const width = `${(100 * Math.min(1, Math.max(0, share))).toFixed(1)}%`;
  setStyle(cell.firstElementChild, "width", width);
  setText(cell.lastElementChild, label);
}
