// A run over the network: who is connected, who is waited for, what went wrong, how fast the links are.
import { bytes, card, figure, fill, h, known, table, tile } from "./dom.js";
import { get, isReport } from "./source.js";
import { chip } from "./devices.js";

const sum = (values) => values.reduce((total, value) => total + value, 0);

export function fleetView(page) {
  const element = h("div");
  const log = h("pre", { tabindex: 0, "aria-label": "log" });

  async function update() {
    const run = page.run();
    if (!run) return;
    const found = await get(`api/runs/${run.id}/fleet`);
    if (!found.served) {
      fill(element, h("p.nothing", {}, "This run is trained in one process; gapsl serve trains over the network."));
      return;
    }
    const { names, connected } = found, here = connected?.filter(Boolean).length;
    const more = found.waiting.length > 6 ? ` and ${found.waiting.length - 6} more` : "";
    const back = found.rollbacks.length ? `to round ${found.rollbacks.slice(-4).join(", ")}` : "of the whole fleet";
    const speed = (value) => (known(value) && value !== false ? `${bytes(value)}/s` : "–");
    const tiles = h("div.tiles", {},
      tile("Connected", connected ? `${here} of ${names.length}` : "–", connected ? null : found.unknown),
      tile("Waiting for", String(found.waiting.length || "nobody"), found.waiting.slice(0, 6).join(", ") + more),
      tile("Drop-outs", figure(sum(found.absent), 6), "rounds closed without a device"),
      tile("Rollbacks", String(found.rollbacks.length), back),
      tile("Throughput", speed(known(found.throughput[0]) && sum(found.throughput)), "all links, last 20 rounds"));
    const rows = names.map((name, device) => [
      name, connected ? chip(connected[device] ? "connected" : "away") : "–",
      figure(found.absent[device], 6), figure(found.restored[device], 6), speed(found.throughput[device]),
    ]);
    const columns = [["device", "key"], ["link", "key"], ["drop-outs"], ["went back"], ["throughput"]];
    const place = found.address && `server at ${found.address}`;
    const about = [place, found.security, `rounds close: ${found.closing}`].filter(Boolean).join(", ");
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    log.textContent = found.log.join("\n") || "No log is kept where this page can read it; gapsl fleet up keeps one.";
    fill(element, tiles, card("Links", about, h("div.scroll.links", {}, table(columns, rows))),
      card(isReport ? "The log's last lines" : "Log", null, log));
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  return { element, update, restyle() {}, leave() {} };
}
