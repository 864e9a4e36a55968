// The page: its frame, and which path is shown in the picture.

import { useEffect, useState } from "preact/hooks";

import { Classes } from "./qos/classes";
import { Flows } from "./qos/flows";
import { Shown, type Showing } from "./qos/show";
import { useChanges, useWorld } from "./state/hooks";
import type { Connection } from "./state/live";
import { Topology } from "./topology/panel";
import { Events } from "./ui/events";
import { Login } from "./ui/login";
import { ThemeChoice } from "./ui/theme";

export function App() {
  const { session } = useWorld();
  useChanges(session);
  return session.wanted() ? <Login /> : <Dashboard key={session.token()} />;
}

function Dashboard() {
  const { live } = useWorld();
  useChanges(live);
  const [showing, setShowing] = useState<Showing>({});
  useEffect(() => {
    void live.start();
    return () => live.end();
  }, [live]);
  return (
    <Shown.Provider value={{ showing, setShowing }}>
      <a class="skip" href="#main">Skip to the network</a>
      <Header />
      <main id="main" tabindex={-1}>
        <Topology route={showing.hovered?.route ?? showing.selected?.route} />
        {live.hasQoS() === false ? <p class="panel soft">This controller runs without the QoS service.</p> : <QoS />}
        <Events />
      </main>
    </Shown.Provider>
  );
}

function QoS() {
  return (
    <>
      <Classes />
      <Flows />
    </>
  );
}

const connections: Record<Connection, string> = { connecting: "Connecting", live: "Live", lost: "Not connected, trying again" };

function Header() {
  const { live, session } = useWorld();
  const status = live.status.value;
  return (
    <header class="top">
      <h1>Sluice</h1>
      <span class="soft">{status?.version}</span>
      <span class={`connection ${live.connection}`} role="status">{connections[live.connection]}</span>
      <nav aria-label="More"><a href="/docs/">API</a></nav>
      <ThemeChoice />
      <button type="button" onClick={() => session.logOut()}>{session.token() ? "Log out" : "Log in"}</button>
    </header>
  );
}
