// The page on which people watch.

import { Grid } from "./grid.js";
import { Player } from "./player.js";
import { Remote } from "./remote.js";

const $ = (id) => document.getElementById(id);
const poll = 2000; // in milliseconds

let channels = [];

const light = new URLSearchParams(location.search).get("player") === "websocket";
const player = new Player($("video"), $("picture"), light, told);
const grid = new Grid($("channels"), watch);
new Remote($("screen"), { step, choose, show: showDigits });

$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
$("stop").addEventListener("click", () => player.stop());
$("full").addEventListener("click", () => $("screen").requestFullscreen?.().catch(() => {}));
$("sound").addEventListener("click", () => {
  $("video").muted = !$("video").muted;
});
$("video").addEventListener("volumechange", showSound);
addEventListener("pagehide", () => player.session?.close());
showSound();
refresh();

// watch shows a channel, and has the address of the page say so.
function watch(name, password) {
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  player.watch(name, password);
}

// step changes to the channel before or after the one that was asked for last, by number, around the
// end: who presses a key twice means two channels.
function step(by) {
  if (channels.length === 0) {
    return;
  }
  const at = channels.findIndex((c) => c.name === player.wanted);
  const next = at < 0 ? 0 : (at + by + channels.length) % channels.length;
  watch(channels[next].name);
}

function choose(number) {
  const c = channels.find((x) => x.number === number);
  if (c) {
    watch(c.name);
  } else {
    say(`There is no channel ${number}.`);
  }
}

function showDigits(text) {
  $("digits").textContent = text;
  $("digits").hidden = text === "";
}

function showSound() {
  $("sound").setAttribute("aria-pressed", String(!$("video").muted));
}

function say(text) {
  if ($("status").textContent !== text) {
    $("status").textContent = text;
  }
}

// told shows what the player tells.
function told({ channel, text, zap, seen, wants, wrong, how }) {
  if (how !== undefined) {
    $("how").textContent = how;
  }
  if (wants !== undefined) {
    askFor(wants, wrong);
    return;
  }
  if (channel !== undefined) {
    $("name").textContent = channel === null ? "No channel is chosen" : titleOf(channel);
    $("zap").textContent = zapText(zap, seen);
    grid.update(channels, channel);
  }
  if (text !== undefined) {
    say(text);
  }
}

function zapText(zap, seen) {
  if (zap === undefined) {
    return "";
  }
  const asked = `changed in ${zap}`;
  return seen === undefined ? asked : `${asked}, seen after ${Math.round(seen)} ms`;
}

function titleOf(name) {
  const c = channels.find((x) => x.name === name);
  return c ? `${c.number} ${c.title || c.name}` : name;
}

// askFor asks for a channel's password.
function askFor(name, wrong) {
  $("asked").textContent = `${titleOf(name)} is protected`;
  $("wrong").textContent = wrong ? "That is not its password." : "";
  $("form").onsubmit = (e) => {
    e.preventDefault();
    const secret = $("password").value;
    closeDialog();
    watch(name, secret);
  };
  $("ask").showModal();
  $("password").focus();
}

function closeDialog() {
  $("password").value = "";
  $("ask").close();
}

$("cancel").addEventListener("click", closeDialog);

// refresh asks what there is to see, again and again.
async function refresh() {
  for (let first = true; ; first = false) {
    try {
      const res = await fetch(`${player.base}/channels`, { signal: AbortSignal.timeout(poll) });
      if (res.ok) {
        show(await res.json());
        if (first && location.hash.length > 1) {
          player.watch(decodeURIComponent(location.hash.slice(1)));
        }
      }
    } catch {
      // the player looks for another gateway if this one is gone
    }
    await new Promise((resolve) => setTimeout(resolve, poll));
  }
}

function show(lineup) {
  channels = [...lineup.channels].sort((a, b) => a.number - b.number);
  player.gateways = lineup.gateways;
  grid.update(channels, player.channel);
  $("nothing").hidden = channels.length > 0;
  $("nothing").textContent = "There is no channel yet.";
  $("absent").textContent = absence(channels.find((c) => c.name === player.channel));
}

// absence says why nothing may be seen of the channel that is watched.
function absence(channel) {
  if (player.channel === null || channel?.on_air === "live") {
    return "";
  }
  return channel ? `${channel.title || channel.name} is not on air. It comes back by itself.` : "This channel is there no longer.";
}
