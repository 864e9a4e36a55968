import { expect, test } from "vitest";

import { summary } from "../src/charts/summary";
import { accessOf } from "../src/devices/access";
import { gapWords } from "../src/devices/gap";
import { packetOf } from "../src/rules/packet";
import { cut } from "../src/ui/paged";
import { addressOf } from "../src/ui/views";

test.each([
  ["", { view: "network", rest: "" }],
  ["#channels", { view: "channels", rest: "" }],
  ["#names", { view: "names", rest: "" }],
  ["#sos", { view: "sos", rest: "" }],
  ["#links/00000000000000a1/3", { view: "links", rest: "00000000000000a1/3" }],
  ["#nonsense/1", { view: "network", rest: "" }],
  ["#links/%E0%A4%A", { view: "links", rest: "" }],
])("address %j", (hash, want) => expect(addressOf(hash)).toEqual(want));

test("a packet in the words of ofproto/trace", () => {
  expect(packetOf("tcp", { src: "10.0.0.1", dst: " 10.0.0.2 ", dst_port: "80" })).toBe("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80");
  expect(packetOf("udp", { src: "2001:db8::1", dst: "2001:db8::2", switch: "s1", in_port: "3" })).toBe("udp6,ipv6_src=2001:db8::1,ipv6_dst=2001:db8::2,switch=s1,in_port=3");
  expect(packetOf("arp", { src: "10.0.0.1", dst: "10.0.0.2" })).toBe("arp,arp_spa=10.0.0.1,arp_tpa=10.0.0.2");
  expect(packetOf("ip", { more: "ip_dscp=46" })).toBe("ip,ip_dscp=46");
});

const parts = { t_a: "0s", t_d: "2ms", t_f: "3ms", t_e: "0s", t_c: "5ms", queue: "0s", store: "0s", trigger_to_rules: "3ms", model: "3ms" };

test("the gap of a move", () => {
  expect(gapWords({ kind: "move", parts, result: "done" })).toBe("5.00 ms (address 2.00 ms, rules 3.00 ms)");
  expect(gapWords({ kind: "move", parts: { ...parts, t_a: "7.81s", t_c: "7.815s" }, result: "done", prepared: true })).toBe("5.00 ms (address 2.00 ms, rules 3.00 ms) after 7.81 s of association, prepared");
  expect(gapWords({ kind: "move", parts, result: "done", bicast: true })).toBe("none: packets went to both places");
  expect(gapWords({ kind: "move", parts, result: "failed" })).toBe("–");
  expect(gapWords({ kind: "prepare", parts, result: "done" })).toBe("–");
});

test("by which access a device is attached", () => {
  const macs = ["0e:00:00:00:00:01", "02:00:00:00:00:01", "02:00:00:00:00:02"];
  expect(accessOf({ at: { port: "p", mac: macs[2]! }, macs })).toBe("interface 2 of 2 (02:00:00:00:00:02)");
  expect(accessOf({ at: { port: "p", mac: macs[1]! }, macs: [macs[1]!] })).toBe(macs[1]);
  expect(accessOf({ at: { port: "p" }, macs })).toBe("not known");
});

test("a line of a chart in figures", () => {
  expect(summary([1, null, 3])).toEqual({ now: 3, lowest: 1, mean: 2, highest: 3 });
  expect(summary([1, null]).now).toBeUndefined();
  expect(summary([null]).mean).toBeUndefined();
});

test("a long text is cut with words", () => {
  expect(cut("abc", 3)).toBe("abc");
  expect(cut("abcdef", 3)).toBe("abc… (3 more)");
});
