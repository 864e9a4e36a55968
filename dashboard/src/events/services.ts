// Events of the services in words.

import type { Names } from "../names/said";
import { durationWords } from "../ui/duration";
import { byteCount } from "../ui/format";
import { attrsOf, because, number, text, type Attrs } from "./attrs";

type Words = (a: Attrs, names: Names) => string;

const flow = (a: Attrs): string => `${text(a, "client")} to ${text(a, "server")}`;
const spot = (a: Attrs, name: string): string => {
  const s = attrsOf(a[name]);
  return text(s, "peer") ? `domain ${text(s, "peer")}` : text(s, "port");
};
const failed = (a: Attrs): string => (text(a, "result") === "failed" ? `, which failed${because(text(a, "how"))}` : "");

export const services: Record<string, Words> = {
  "sos.session.established": (a) => `Agents ${text(a, "client_agent")} and ${text(a, "server_agent")} carry ${flow(a)}`,
  "sos.session.ended": (a) => `The session ${flow(a)} ended${because(text(a, "how"))}; it carried ${byteCount(number(a, "bytes_up") + number(a, "bytes_down"))}`,
  "sos.session.direct": (a) => `${flow(a)} goes directly${because(text(a, "why"))}`,
  "sos.session.rerouted": (a) => `The session ${text(a, "session")} took another way on the side of the ${text(a, "side")}`,
  "sos.session.taken-over": (a) => `The session ${flow(a)} was found when the controller started`,
  "sos.agents.rerouted": () => "The ways between two agents have changed",
  "sos.agent.up": (a) => `Agent ${text(a, "agent")} is up`,
  "sos.agent.silent": (a) => `Agent ${text(a, "agent")} is silent${because(text(a, "error"))}`,
  "sos.agent.drifted": (a) => `Agent ${text(a, "agent")} has restored what another program on its machine had changed`,
  "sos.agent.added": (a) => `Agent ${text(a, "name")} was added`,
  "sos.agent.removed": (a) => `Agent ${text(a, "name")} was removed`,
  "sos.agent.changed": (a) => `Agent ${text(a, "name")} takes ${attrsOf(a["agent"])["draining"] === true ? "no new sessions" : "new sessions again"}`,
  "sos.whitelist.added": (a) => `Whitelist entry ${text(attrsOf(a["entry"]), "name") || text(a, "name")} was added`,
  "sos.whitelist.changed": (a) => `Whitelist entry ${text(attrsOf(a["entry"]), "name") || text(a, "name")} was changed`,
  "sos.whitelist.removed": (a) => `Whitelist entry ${text(a, "name")} was removed`,
  "sos.config.changed": () => "The configuration of SOS was changed",
  "handover.device.attached": (a) => `Device ${text(a, "device")} attached at ${spot(a, "to")}${failed(a)}`,
  "handover.device.moved": (a) => `Device ${text(a, "device")} moved from ${spot(a, "from")} to ${spot(a, "to")}; its rules took ${durationWords(text(attrsOf(a["parts"]), "t_f"))}${failed(a)}`,
  "handover.device.prepared": (a) => `${spot(a, "to")} was prepared for device ${text(a, "device")}${failed(a)}`,
  "handover.device.detached": (a) => `Device ${text(a, "device")} left ${spot(a, "from")}${failed(a)}`,
  "handover.device.rerouted": (a) => `Device ${text(a, "device")} is reached by another way${because(text(a, "cause"))}${failed(a)}`,
  "handover.device.ordered": (a) => `Device ${text(a, "device")} was ordered to move${text(a, "why") ? `: ${text(a, "why")}` : ""}`,
  "handover.device.reported": (a) => `Device ${text(a, "device")} ${a["done"] === true ? "has moved as it was told" : "has not moved as it was told"}${because(text(a, "text"))}`,
  "handover.device.added": (a) => `Device ${text(a, "name")} was registered`,
  "handover.device.changed": (a) => `Device ${text(a, "name")} was changed`,
  "handover.device.removed": (a) => `Device ${text(a, "name")} was removed`,
  "handover.class.added": (a) => `Class of devices ${text(a, "name")} was added`,
  "handover.class.changed": (a) => `Class of devices ${text(a, "name")} was changed`,
  "handover.class.removed": (a) => `Class of devices ${text(a, "name")} was removed`,
  "handover.pool.added": (a) => `Pool ${text(a, "name")} was added`,
  "handover.pool.changed": (a) => `Pool ${text(a, "name")} was changed`,
  "handover.pool.removed": (a) => `Pool ${text(a, "name")} was removed`,
  "handover.lease.expired": (a) => `The lease of device ${text(a, "device")} for ${text(a, "ip")} is over`,
  "handover.host.unreachable": (a) => `Nobody reaches ${text(a, "ip")} (${text(a, "mac")}) at ${text(a, "port")}${because(text(a, "reason"))}`,
  "handover.service.ready": (a) => `Handover is ready after ${durationWords(text(a, "took"))}`,
  "handover.flood.started": (a) => `A flood of messages at ${text(a, "port")}: what is above ${text(a, "messages_per_second")} a second is dropped`,
  "handover.flood.ended": (a) => `The flood at ${text(a, "port")} is over; ${text(a, "dropped")} messages were dropped`,
  "qos.class.accepted": (a) => `Class ${text(a, "class")} was accepted`,
  "qos.class.added": (a) => `Class ${text(a, "name")} is declared`,
  "qos.class.changed": (a) => `Class ${text(a, "name")} was changed`,
  "qos.class.refused": (a) => `Class ${text(a, "class")} was refused${because(text(a, "reason"))}`,
  "qos.class.removed": (a) => `Class ${text(a, "name")} was released`,
  "qos.class.moved": (a) => `Class ${text(a, "class")} was moved to another path`,
  "qos.class.degraded": (a) => `Class ${text(a, "class")} cannot be kept${because(text(a, "reason"))}`,
  "qos.class.ineffective": (a) => `Class ${text(a, "class")} has no effect${because(text(a, "reason"))}`,
  "qos.class.not-carried": (a) => `Class ${text(a, "class")} is not kept where agents carry it, at ${text(a, "switch")}/${text(a, "port")}${because(text(a, "reason"))}`,
  "qos.class.effective": (a) => `Class ${text(a, "class")} has its effect again`,
  "qos.critical.added": (a) => `Traffic ${text(a, "name")} is critical`,
  "qos.critical.changed": (a) => `What is critical of traffic ${text(a, "name")} was changed`,
  "qos.critical.removed": (a) => `Traffic ${text(a, "name")} is not critical any more`,
  "qos.critical.refused": (a) => `Switch ${text(a, "switch")} does not recognise critical flows${because(text(a, "reason"))}`,
  "qos.flow.accepted": (a) => `Critical flow ${text(a, "flow")} of ${text(a, "definition")} has its promise`,
  "qos.flow.best-effort": (a) => `Critical flow ${text(a, "flow")} of ${text(a, "definition")} has no promise${because(text(a, "reason"))}`,
  "qos.flow.failed": (a) => `Critical flow ${text(a, "flow")} of ${text(a, "definition")} could not be placed${because(text(a, "reason"))}`,
  "qos.flow.moved": (a) => `Critical flow ${text(attrsOf(a["flow"]), "flow")} was moved to another path${because(text(a, "cause"))}`,
  "qos.flow.oversubscribed": (a) => `Critical flow ${text(attrsOf(a["flow"]), "flow")} lacks room${because(text(a, "reason"))}`,
  "qos.flow.degraded": (a) => `Critical flow ${text(attrsOf(a["flow"]), "flow")} is promised nothing any more${because(text(a, "reason"))}`,
  "qos.flow.exceeds": (a) => `Critical flow ${text(a, "flow")} of ${text(a, "definition")} sends more than was promised to it`,
  "qos.flow.ended": (a) => `Critical flow ${text(a, "flow")} of ${text(a, "definition")} is over`,
  "qos.subflow.placed": (a) => `Further subflow ${text(a, "flow")} has a path of its own`,
  "qos.subflow.failed": (a) => `Further subflow ${text(a, "flow")} goes like all traffic${because(text(a, "reason"))}`,
  "qos.subflow.moved": (a) => `Further subflow ${text(attrsOf(a["subflow"]), "flow")} was moved to another path${because(text(a, "cause"))}`,
  "qos.subflow.ended": (a) => `Further subflow ${text(a, "flow")} is over${because(text(a, "reason"))}`,
  "mobilityfirst.name.found": (a) => `Name ${text(a, "name").slice(0, 8)} is at ${text(a, "port")}`,
  "mobilityfirst.node.up": (a) => `Node ${text(a, "agent")} of names is up`,
  "mobilityfirst.node.silent": (a) => `Node ${text(a, "agent")} of names is silent${because(text(a, "error"))}`,
  "mobilityfirst.node.added": (a) => `Node ${text(a, "name")} of names was added`,
  "mobilityfirst.node.removed": (a) => `Node ${text(a, "name")} of names was removed`,
  "mobilityfirst.node.changed": (a) => `Node ${text(a, "name")} of names ${attrsOf(a["agent"])["draining"] === true ? "gets no new paths where there is another" : "gets new paths"}`,
  "store.writes.refused": (a) => `Nothing can be written down${because(text(a, "reason"))}`,
  "store.writes.resumed": () => "The store can be written to again",
};
