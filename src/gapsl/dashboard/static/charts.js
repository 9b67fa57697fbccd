// Line charts with bands, on uPlot; the legend is ours, so that bands are in it and it works with the keyboard.
/* global uPlot */
import { bytes, colourOf, duration, figure, h, known, onPage } from "./dom.js";

export const AXES = { round: "rounds", epoch: "epochs", bytes: "bytes", seconds: "seconds" };
const AXIS_TEXT = { round: (x) => figure(x, 4), epoch: (x) => figure(x, 3), bytes, seconds: duration };

// series: [{label, colour, values, dash, width, low, high, text}], all of the same x
export class Chart {
  constructor({ height = 240, text = figure, onzoom = null, sync = null, floor = null }) {
    Object.assign(this, { height, text, onzoom, sync, floor });
    this.hidden = new Set();
    this.legend = h("div.legend");
    this.plot = h("div.plot");
    this.element = h("div.chart", {}, this.legend, this.plot);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plot);
  }

  draw(axis, x, series) {
    this.series = series;
    const shape = JSON.stringify([axis, colourOf("--page"), series.map((s) => [s.label, s.colour, s.dash, !!s.low])]);
    const columns = [x];
    for (const one of series) columns.push(one.values, ...(one.low ? [one.low, one.high] : []));
    this.columns = columns;
    if (this.drawn && shape === this.shape) {
      this.drawn.setData(columns);
    } else {
      this.shape = shape;
      this.drawn?.destroy();
      this.drawn = new uPlot(this.options(axis, series), columns, this.plot);
      this.element.dataset.points = String(x.length);
    }
    this.describe(null);
  }

  options(axis, series) {
    const line = colourOf("--line"), ink = colourOf("--muted");
    const font = "12px system-ui, sans-serif";
    const side = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
    const shown = [{}], bands = [];
    for (const one of series) {
      const place = shown.length, show = !this.hidden.has(one.label);
      shown.push({
        label: one.label, stroke: onPage(one.colour, one.alpha ?? 1), width: one.width ?? 2, dash: one.dash, show,
        spanGaps: true, points: { size: 5, show: one.width === 1 ? false : undefined },
      });
      if (!one.low) continue;
      const edge = { stroke: "transparent", width: 0, show, spanGaps: true, points: { show: false } };
      shown.push({ ...edge }, { ...edge });
      bands.push({ series: [place + 2, place + 1], fill: onPage(one.colour, 0.15) });
    }
    const most = Math.max(3, Math.floor(this.width() / 90));
    return {
      width: this.width(), height: this.height, series: shown, bands,
      legend: { show: false },
      cursor: {
        sync: this.sync ? { key: this.sync, setSeries: false } : undefined,
        drag: { x: !!this.onzoom, y: false, setScale: false },
        points: { size: 7 },
        bind: { dblclick: () => () => { this.onzoom?.(null); return null; } },
      },
      scales: { x: { time: false }, y: { range: (u, low, high) => this.range(low, high) } },
      axes: [
        { ...side, values: (u, ticks) => ticks.map(AXIS_TEXT[axis]), space: this.width() / most, size: 28 },
        { ...side, values: (u, ticks) => ticks.map((tick) => this.text(tick, true)), size: 52 },
      ],
      hooks: {
        setCursor: [(u) => this.describe(u.cursor.idx)],
        setSelect: [(u) => {
          const { left, width } = u.select;
          if (width > 4) this.onzoom?.([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };
  }

  range(low, high) {
    if (!known(low) || !known(high)) return [0, 1];
    const room = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
    return [known(this.floor) && low >= this.floor ? Math.max(this.floor, low - room) : low - room, high + room];
  }

  describe(place) {
    if (!this.legend.children.length || this.described !== this.shape) {
      this.described = this.shape;
      this.legend.replaceChildren(...this.series.filter((one) => !one.unnamed).map((one) => this.entry(one)));
    }
    const named = this.series.filter((one) => !one.unnamed);
    this.legend.querySelectorAll("output").forEach((output, i) => {
      const { values } = named[i];
      let at = place ?? values.length - 1;
      while (at > 0 && !known(values[at])) at -= 1; // what is measured more rarely was so until then
      output.textContent = known(values[at]) ? this.text(values[at]) : "";
    });
  }

  entry(one) {
    const swatch = h("svg", { viewBox: "0 0 18 10", width: 18, height: 10, "aria-hidden": "true" },
      one.low && h("rect", { width: 18, height: 10, fill: onPage(one.colour, 0.2) }),
      h("line", {
        x1: 0, x2: 18, y1: 5, y2: 5, stroke: onPage(one.colour, one.alpha ?? 1),
        "stroke-width": one.width ?? 2, "stroke-dasharray": one.dash?.join(" "),
      }));
    const toggle = () => {
      this.hidden.has(one.label) ? this.hidden.delete(one.label) : this.hidden.add(one.label);
      this.shape = null;
      this.redraw();
    };
    const pressed = String(!this.hidden.has(one.label));
    return h("button", { type: "button", title: "show or hide", onclick: toggle, "aria-pressed": pressed },
      swatch, h("span", {}, one.label), h("output"));
  }

  redraw() {
    this.again?.();
  }

  width() {
    return Math.max(200, this.plot.clientWidth || 600);
  }

  resize() {
    const width = this.width();
    if (this.drawn && Math.abs(this.drawn.width - width) > 1) this.drawn.setSize({ width, height: this.height });
  }

  // Draws, and again whenever the theme or what is hidden changes.
  show(axis, x, series) {
    this.again = () => this.draw(axis, x, series);
    this.again();
  }

  destroy() {
    this.observer.disconnect();
    this.drawn?.destroy();
  }
}
