import { expect, test } from "vitest";

import type { BusEvent } from "../src/api/types";
import { eventWords } from "../src/events/words";
import { Names } from "../src/names/said";

const names = new Names(new Map([["00000000000000a1", "s1"], ["00000000000000a2", "s2"]]));
const said = (kind: string, attrs?: unknown): string => eventWords({ id: 1, at: "", kind, attrs } as BusEvent, names);
const a = "00000000000000a1", b = "00000000000000a2";

test.each([
  ["network.switch.up", { switch: a }, "Switch s1 connected"],
  ["network.port.down", { switch: a, port: 3 }, "Port 3 of s1 went down"],
  ["network.link.down", { link: { from: { switch: a, port: 3 }, to: { switch: b, port: 1 } } }, "Link s1 port 3 to s2 port 1 is gone"],
  ["network.host.moved", { host: { mac: "02:00:00:00:00:01", ips: ["10.0.0.1"], at: { switch: b, port: 2 } }, from: { switch: a, port: 1 } }, "The host 10.0.0.1 (02:00:00:00:00:01) moved from s1 port 1 to s2 port 2"],
  ["network.events.left-out", { switch: a, port: 3, left_out: 12 }, "12 events of s1 port 3 were left out"],
  ["sos.session.direct", { client: "10.0.0.1:5", server: "10.0.0.2:80", why: `no path from ${a}/1` }, "10.0.0.1:5 to 10.0.0.2:80 goes directly: no path from s1 port 1"],
  ["sos.session.ended", { client: "c", server: "d", bytes_up: 1e6, bytes_down: 5e5 }, "The session c to d ended; it carried 1.50 MB"],
  ["handover.device.moved", { device: "phone", from: { port: `${a}/1` }, to: { port: `${b}/2` }, parts: { t_f: "12ms" }, result: "done" }, "Device phone moved from s1 port 1 to s2 port 2; its rules took 12.0 ms"],
  ["qos.class.degraded", { class: "voice", reason: `the link from ${a}/1 is down` }, "Class voice cannot be kept: the link from s1 port 1 is down"],
  ["cinema.viewer.changed", { viewer: "00112233445566778899aabbccddeeff", gateway: "out1", channel: "news", zap: "23.4ms" }, "Viewer 00112233 of gateway out1 changed to news in 23.4 ms"],
  ["cinema.tree.changed", { channel: "news", links: 1, added: 1, removed: 2 }, "Channel news is on 1 link: 1 more, 2 fewer than before"],
  ["cinema.tree.refused", { channel: "news", gateway: "out1", reason: `link ${a}/1: 2Mbit wanted` }, "Viewers of gateway out1 do not get channel news: link s1 port 1: 2Mbit wanted"],
  ["cinema.egress-agent.changed", { name: "out1", agent: { draining: true } }, "The egress gateway out1 takes no new viewers"],
  ["cinema.ingress-agent.changed", { name: "in1", agent: {} }, "The ingress gateway in1 takes new channels again"],
  ["mobilityfirst.node.changed", { name: "depot-1", agent: { draining: true } }, "Node depot-1 of names gets no new paths where there is another"],
  ["mobilityfirst.node.silent", { agent: "depot-1", error: "refused" }, "Node depot-1 of names is silent: refused"],
  ["new.thing-done", { some_port: `${a}/1`, n: 3 }, "new thing done: some port s1 port 1, n 3"],
  ["new.thing-done", undefined, "new thing done"],
])("%s %j", (kind, attrs, words) => expect(said(kind, attrs)).toBe(words));

test.each([null, 5, "text", [], { switch: {} }, { host: null, from: 7 }])("what tells something else than expected breaks nothing: %j", (attrs) => {
  for (const kind of ["network.switch.up", "network.host.moved", "network.link.up", "sos.session.ended", "handover.device.moved", "qos.flow.moved", "cinema.viewer.changed", "cinema.tree.changed", "cinema.egress-agent.changed"]) expect(typeof said(kind, attrs)).toBe("string");
});

test("a long event is cut", () => {
  const words = said("x.y", { text: "a".repeat(5000) });
  expect(words.length).toBeLessThan(340);
  expect(words).toMatch(/… \(\d+ more\)$/);
});
