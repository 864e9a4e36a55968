// The page on which people publish, by WHIP.

import { authorization, bye, refusal } from "./whep.js";

const $ = (id) => document.getElementById(id);
const poll = 5000; // in milliseconds
const gatherTime = 1500;
const publishTime = 8000;

let channels = [];
let show = null; // what is being published

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  start();
});
$("stop").addEventListener("click", () => end("You are off air."));
addEventListener("pagehide", () => end(""));
refresh();

async function refresh() {
  for (;;) {
    try {
      const res = await fetch("channels", { signal: AbortSignal.timeout(poll) });
      if (res.ok) {
        list((await res.json()).channels.filter((c) => c.publish_at));
      }
    } catch {
      // it is asked again
    }
    await new Promise((resolve) => setTimeout(resolve, poll));
  }
}

function list(some) {
  some.sort((a, b) => a.number - b.number);
  if (JSON.stringify(some.map((c) => c.name)) !== JSON.stringify(channels.map((c) => c.name))) {
    const chosen = $("channel").value;
    $("channel").replaceChildren(...some.map((c) => new Option(`${c.number} ${c.title || c.name}`, c.name)));
    $("channel").value = some.some((c) => c.name === chosen) ? chosen : (some[0]?.name ?? "");
  }
  channels = some;
  if (some.length === 0 && !show) {
    say("There is no channel that can be published from here.");
  }
}

function say(text) {
  $("status").textContent = text;
}

function running(on) {
  $("start").disabled = on;
  $("stop").disabled = !on;
}

async function capture() {
  if (!navigator.mediaDevices) {
    throw new Error("The browser gives camera and screen to pages that came by https only.");
  }
  if (new FormData($("form")).get("what") === "screen") {
    return navigator.mediaDevices.getDisplayMedia({ video: { frameRate: 30 }, audio: true });
  }
  return navigator.mediaDevices.getUserMedia({ video: { width: 1280, height: 720, frameRate: 30 }, audio: true });
}

async function start() {
  const channel = channels.find((c) => c.name === $("channel").value);
  if (!channel) {
    return;
  }
  running(true);
  const mine = { stream: null, pc: null, url: "" };
  show = mine;
  try {
    say("Asking for camera or screen …");
    mine.stream = await capture();
    $("video").srcObject = mine.stream;
    say("Connecting …");
    await publish(mine, channel, $("password").value);
    $("password").value = "";
    say(`You are on air on ${channel.title || channel.name}.`);
  } catch (err) {
    end(err.message || String(err));
  }
}

async function publish(mine, channel, password) {
  const pc = new RTCPeerConnection();
  mine.pc = pc;
  for (const track of mine.stream.getTracks()) {
    const t = pc.addTransceiver(track, { direction: "sendonly", streams: [mine.stream] });
    if (track.kind === "video") {
      t.setCodecPreferences(houseFirst(RTCRtpSender.getCapabilities("video").codecs));
      track.addEventListener("ended", () => end("Camera or screen has ended; you are off air."));
    }
  }
  pc.addEventListener("connectionstatechange", () => {
    if (pc.connectionState === "failed" && show === mine) {
      end("The gateway is gone; you are off air.");
    }
  });
  await pc.setLocalDescription();
  await gathered(pc);
  const res = await fetch(whipURL(channel), {
    method: "POST",
    headers: { "Content-Type": "application/sdp", ...authorization(password) },
    body: pc.localDescription.sdp,
    signal: AbortSignal.timeout(publishTime),
  });
  if (!res.ok) {
    throw await refusal(res);
  }
  mine.url = new URL(res.headers.get("Location"), res.url).href;
  await pc.setRemoteDescription({ type: "answer", sdp: await res.text() });
}

// houseFirst puts H.264 of the constrained baseline profile first, which needs no transcoding.
function houseFirst(codecs) {
  const house = (c) => c.mimeType === "video/H264" && /packetization-mode=1/.test(c.sdpFmtpLine) && /profile-level-id=42e0/i.test(c.sdpFmtpLine);
  return [...codecs.filter(house), ...codecs.filter((c) => !house(c))];
}

function whipURL(channel) {
  const at = channel.publish_at.replace(/\/$/, "");
  return at.includes("/whip/") ? at : `${at}/whip/${encodeURIComponent(channel.name)}`;
}

function gathered(pc) {
  return new Promise((resolve) => {
    const done = () => pc.iceGatheringState === "complete" && resolve();
    pc.addEventListener("icegatheringstatechange", done);
    setTimeout(resolve, gatherTime);
    done();
  });
}

function end(text) {
  const mine = show;
  show = null;
  if (mine) {
    mine.stream?.getTracks().forEach((t) => t.stop());
    bye(mine.url, () => mine.pc?.close());
  }
  $("video").srcObject = null;
  running(false);
  say(text);
}
