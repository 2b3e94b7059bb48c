"use strict";
// Without this script everything is on the page; with it tables sort, verdicts and words filter the ledger, links unfold.
(() => {
  const say = (text) => { document.getElementById("said").textContent = text; };
  const value = (row, index, numeric) => {
    const text = row.cells[index].textContent.trim();
    const found = /^([-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)( k)?/i.exec(text.replaceAll(",", ""));
    return numeric ? found && Number(found[1].replace("\u2212", "-")) * (found[2] ? 1000 : 1) : text || null;
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
  for (const table of document.querySelectorAll(".scroll table:not(.matrix)")) {
    [...table.tHead.rows[0].cells].forEach((header, index) => {
      const button = document.createElement("button");
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, header, index));
      header.append(button);
    });
  }
  const label = document.createElement("label"), field = document.createElement("input"), count = document.createElement("span");
  const rows = [...document.getElementById("ledger").tBodies[0].rows];
  let verdict = "all";
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const asked = verdict === "all" || row.querySelector(".badge").textContent === verdict;
      row.hidden = !asked || !words.every((word) => row.textContent.toLowerCase().includes(word));
    }
    for (const tile of document.querySelectorAll("#claims .counts button")) tile.setAttribute("aria-pressed", tile.firstChild.textContent === verdict);
    count.textContent = ` ${rows.filter((row) => !row.hidden).length} of ${rows.length} claims.`;
    say(count.textContent.trim());
  };
  const choose = (name) => { verdict = name; filter(); };
  for (const item of document.querySelectorAll("#claims .counts li")) {
    const button = document.createElement("button"), name = item.firstChild.textContent;
    button.append(...item.childNodes);
    button.addEventListener("click", () => choose(verdict === name ? "all" : name));
    item.append(button);
  }
  label.className = "filter";
  label.append("Only claims with ", field);
  field.addEventListener("input", filter);
  document.getElementById("ledger").closest(".scroll").before(label, count);
  filter();
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1))), folded = target?.closest("details");
    if (target?.hidden) { field.value = ""; choose("all"); }
    if (folded) folded.open = true;
    target?.scrollIntoView();
    if (folded && target === folded) folded.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  reveal();
  const size = new ResizeObserver((seen) => {
    for (const { target } of seen) target.tabIndex = target.classList.toggle("fits", target.scrollWidth <= target.clientWidth) ? -1 : 0;
  });
  for (const box of document.querySelectorAll(".scroll")) size.observe(box);
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
})();
