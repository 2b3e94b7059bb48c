"use strict";
// Without this script everything is on the page; with it tables sort, the ledger filters, links and printing unfold.
(() => {
  const say = (text) => { document.getElementById("said").textContent = text; };
  const value = (row, index, numeric) => {
    const text = row.cells[index].textContent.trim();
    const found = /[-+\u2212]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i.exec(text.replaceAll(",", ""));
    return numeric ? found && Number(found[0].replace("\u2212", "-")) : text || null;
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const sort = (table, header, index) => {
    const down = header.getAttribute("aria-sort") === "ascending";
    const rows = [...table.tBodies[0].rows].map((row) => [value(row, index, header.classList.contains("number")), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // nothing to compare: last
      return down ? compare(b, a) : compare(a, b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    say(`Sorted by ${header.textContent.trim()}, ${down ? "descending" : "ascending"}.`);
  };
  for (const table of document.querySelectorAll(".table table")) {
    [...table.tHead.rows[0].cells].forEach((header, index) => {
      const button = document.createElement("button");
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, header, index));
      header.append(button);
    });
  }
  const label = document.createElement("label"), field = document.createElement("input");
  label.className = "filter";
  label.append("Only rows with ", field);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/), rows = [...document.getElementById("ledger").tBodies[0].rows];
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    say(`${rows.filter((row) => !row.hidden).length} of ${rows.length} rows.`);
  });
  document.getElementById("ledger").closest(".table").prepend(label);
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1))), folded = target?.closest("details");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
    if (target === folded) folded.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
})();
