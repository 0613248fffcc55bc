// Small repairs of the theme's markup, and tables that can be scrolled with the keyboard.
addEventListener("DOMContentLoaded", function () {
  // A name that differs from the visible words confuses speech control (WCAG 2.5.3).
  document
    .querySelectorAll("details.hide > summary[aria-label], .search-button-field[aria-label], .theme-switch-button[aria-label]")
    .forEach(function (element) { element.removeAttribute("aria-label"); });
  document.querySelectorAll(".sidebar-primary-item > a.navbar-brand").forEach(function (element) {
    element.parentElement.setAttribute("role", "navigation");
    element.parentElement.setAttribute("aria-label", "Book title");
  });
  markScrolling();
});

// What scrolls sideways must be reachable with Tab; the theme sees to code, this to the rest.
function markScrolling() {
  document
    .querySelectorAll(".bd-article .pst-scrollable-table-container, .bd-article div.math, .bd-article .text_html")
    .forEach(function (box) {
      if (box.scrollWidth > box.clientWidth + 1) { box.tabIndex = 0; } else { box.removeAttribute("tabindex"); }
    });
}
addEventListener("load", markScrolling);
addEventListener("resize", markScrolling);

// On paper every folded part is open.
(function () {
  var opened = [];
  addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll(".bd-article details:not([open])"));
    opened.forEach(function (part) { part.open = true; });
  });
  addEventListener("afterprint", function () { opened.forEach(function (part) { part.open = false; }); });
})();
