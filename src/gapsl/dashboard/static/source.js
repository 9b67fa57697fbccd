// Where answers come from: the server, with news while runs are trained, or a report that has them in it.

const embedded = document.getElementById("answers");
const stored = embedded ? JSON.parse(embedded.textContent) : null;

export const isReport = stored !== null;

export class Unreachable extends Error {}

export async function get(path, params = {}) {
  const query = new URLSearchParams(params).toString();
  const address = query ? `${path}?${query}` : path;
  if (isReport) return stored[address] ?? stored[path];
  const answer = await fetch(address, { cache: "no-store" }).catch(() => { throw new Unreachable(); });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// Calls onnews whenever something has changed, also after the server was away; onlink says whether it is there.
export function follow(onnews, onlink) {
  if (isReport) return;
  const link = new EventSource("events");
  link.onopen = () => onlink(true);
  link.onmessage = () => onnews();
  link.onerror = () => {
    onlink(false);
    if (link.readyState === EventSource.CLOSED) {
      setTimeout(() => follow(onnews, onlink), 2000);
    }
  };
}
