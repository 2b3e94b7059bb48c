"use strict";
// Without this script everything is on the page already; with it tables sort, the ledger filters, and
// links and printing open what is folded.
(() => {
  const said = document.getElementById("said");
  const say = (text) => { said.textContent = text; };

  // -- tables that sort -----------------------------------------------------------------------------

  const number = (text) => {
    const found = /[-+\u2212]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i.exec(text.replaceAll(",", ""));
    return found ? Number(found[0].replace("\u2212", "-")) : null;
  };

  const key = (row, index, numeric) => {
    const text = row.cells[index].textContent.trim();
    return numeric ? number(text) : text || null;
  };

  const compare = (a, b) =>
    typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });

  const sort = (table, header, index) => {
    const numeric = header.classList.contains("k-number");
    const down = header.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [key(row, index, numeric), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // nothing to compare: last
      return down ? compare(b, a) : compare(a, b);
    });
    body.append(...keyed.map(([, row]) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    say(`Sorted by ${header.textContent.trim()}, ${down ? "descending" : "ascending"}.`);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((header, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, header, index));
      header.append(button);
    });
  }

  // -- a field that filters -------------------------------------------------------------------------

  for (const table of document.querySelectorAll("table[data-filter]")) {
    const label = document.createElement("label");
    const field = document.createElement("input");
    label.className = "filter";
    field.type = "search";
    label.append("Only rows with ", field);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      say(`${shown} of ${table.tBodies[0].rows.length} rows.`);
    });
    table.closest(".table").prepend(label);
  }

  // -- what is folded -------------------------------------------------------------------------------

  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target?.closest("details");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
    if (target === folded) folded.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  reveal();

  const cells = [...document.querySelectorAll("details.cell")];
  if (cells.length > 1) {
    const button = document.createElement("button");
    const name = () => { button.textContent = cells.every((one) => one.open) ? "Fold all cells" : "Unfold all cells"; };
    button.type = "button";
    button.className = "all";
    button.addEventListener("click", () => {
      const open = !cells.every((one) => one.open);
      for (const one of cells) one.open = open;
      name();
    });
    for (const one of cells) one.addEventListener("toggle", name);
    name();
    cells[0].before(button);
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });
})();
