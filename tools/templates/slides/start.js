MathJax.startup.promise.then(function () {
  // Whoever has moved into a box that scrolls, or into an interactive figure, moves there.
  function reading() { return document.activeElement.closest(".slide, .page"); }
  // A formula that is wider than its slide is set smaller. Widths are in ex, which browsers round
  // to whole pixels for some fonts: one division is not always enough.
  function shrink(formula) {
    var room = formula.parentElement.clientWidth, drawing = formula.querySelector("svg");
    for (var size = 100; size > 40; size -= 4) {
      var least = parseFloat(getComputedStyle(formula).minWidth) || 0;
      if (Math.max(least, drawing.width.baseVal.value) <= room) { return; }
      formula.style.fontSize = size + "%";
    }
  }
  // An interactive figure is made for a page of text: on a slide it is as large as fits.
  function enlarge(page) {
    var box = page.parentElement;
    for (var size = 140; size >= 75 && !page.dataset.fits; size -= 5) {
      page.style.zoom = size + "%";
      if (box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth) {
        page.dataset.fits = "1";
      }
    }
  }
  // A slide that is too tall scrolls; then it must be reachable by keyboard.
  function mark() {
    var slide = Reveal.getCurrentSlide().querySelector(".slide");
    slide.querySelectorAll("mjx-container[display=true]").forEach(shrink);
    slide.querySelectorAll(".page").forEach(enlarge);
    [slide].concat(Array.from(slide.querySelectorAll(".printed"))).forEach(function (box) {
      var over = box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
      if (over) { box.tabIndex = 0; } else { box.removeAttribute("tabindex"); }
    });
  }
  // The lecture is what stands side by side: 7 / 30, and 7.2 / 30 for the second slide below.
  function numbered(slide) {
    var at = Reveal.getIndices(slide), all = Reveal.getHorizontalSlides().length;
    return [at.h + 1 + (at.v ? "." + at.v : ""), "/", all];
  }
  Reveal.initialize({
    width: 1280, height: 720, margin: 0, minScale: 0.1, maxScale: 3, center: false,
    hash: true, slideNumber: numbered, transition: "none", backgroundTransition: "none",
    controlsTutorial: false, display: "block", plugins: [RevealNotes],
    keyboardCondition: function () { return !reading(); }
  }).then(function () {
    mark();
    Reveal.on("slidechanged", mark);
    document.documentElement.dataset.ready = "1";
  });
});
