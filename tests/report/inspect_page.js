// Returns what is wrong with how the page is laid out: a list of sentences, empty if it is right.
() => {
  const problems = [];
  const page = document.documentElement.clientWidth;
  const name = (e) => `<${e.tagName.toLowerCase()} class="${e.getAttribute("class") || ""}"> "${e.textContent.trim().slice(0, 40)}"`;
  const ancestors = function* (e) { for (; e instanceof Element; e = e.parentElement) yield e; };
  const scrolls = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);

  // Colours of every notation, as [red, green, blue, alpha] in [0, 1].
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data, (part) => part / 255);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, i) => a * part + (1 - a) * under[i]);
  const backdrop = (e) => {
    const layers = [...ancestors(e)].map((one) => parse(getComputedStyle(one).backgroundColor)).reverse();
    return layers.reduce((under, layer) => over(layer, under), [1, 1, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };

  const wide = document.scrollingElement.scrollWidth;
  if (wide > page) problems.push(`the page is ${wide} px wide`);
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || !e.checkVisibility()) continue;
    const contained = [...ancestors(e.parentElement)].some(scrolls);
    if (!contained && (box.right > page + 1 || box.left < -1)) problems.push(`${name(e)} ends at ${box.right} px`);
    const own = [...e.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!own) continue;
    const style = getComputedStyle(e);
    const drawing = e.closest("svg");
    const background = backdrop(drawing || e);
    const ratio = contrast(over(parse(drawing ? style.fill : style.color), background), background);
    if (ratio < 4.5) problems.push(`${name(e)} has a contrast of ${ratio.toFixed(2)}`);
    if (!drawing) continue;
    const scale = e.getScreenCTM();
    const size = parseFloat(style.fontSize) * Math.hypot(scale.a, scale.b);
    if (size < 9) problems.push(`${name(e)} is ${size.toFixed(1)} px high`);
    const frame = drawing.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1) problems.push(`${name(e)} is cut off`);
  }
  for (const drawing of document.querySelectorAll("svg")) {
    if (!drawing.getAttribute("aria-label")) problems.push("a figure has no alternative text");
    const boxes = [...drawing.querySelectorAll("text")].map((e) => [e, e.getBoundingClientRect()]);
    boxes.forEach(([e, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 0.3 * Math.min(a.height, b.height)) problems.push(`${name(e)} covers ${name(other)}`);
    }));
  }
  return problems;
}
