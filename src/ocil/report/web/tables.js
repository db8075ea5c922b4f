// Tables: columns sort when their heading is pressed, long tables get a field to narrow them down.
"use strict";

/** The number a cell begins with; NaN for words and for cells that hold none. */
function leadingNumber(text) {
  return parseFloat(text.replace(/,/g, ""));
}

/** Sort the body by a column; what has no value comes last whatever the direction. */
function sortTable(table, column, descending) {
  const body = table.tBodies[0];
  const words = table.tHead.rows[0].cells[column].classList.contains("left");
  const rows = Array.from(body.rows, (row) => {
    const text = row.cells[column].querySelector(".value").textContent.trim();
    return { row, text, number: leadingNumber(text) };
  });
  const lacks = (item) => (words ? !item.text : Number.isNaN(item.number));
  const sign = descending ? -1 : 1;
  const compare = (a, b) =>
    words
      ? a.text.localeCompare(b.text, "en", { numeric: true })
      : a.number - b.number;
  rows.sort((a, b) => lacks(a) - lacks(b) || (lacks(a) ? 0 : sign * compare(a, b)));
  body.append(...rows.map((item) => item.row));
}

/** Turn the headings of a table into buttons that sort it. */
function makeSortable(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const words = head.classList.contains("left");
      const descending = now ? now === "ascending" : !words;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortTable(table, column, descending);
    });
  });
}

/** A field above a long table that leaves only the rows with the given words. */
function makeNarrowable(table) {
  const rows = Array.from(table.tBodies[0].rows);
  if (rows.length < 12) return;
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = `Search ${rows.length} rows`;
  field.setAttribute("aria-label", "Show only rows with these words");
  field.className = "narrow";
  const texts = rows.map((row) => row.textContent.toLowerCase());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, n) => {
      row.hidden = !words.every((word) => texts[n].includes(word));
    });
  });
  table.closest(".scroll").before(field);
}
