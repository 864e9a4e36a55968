// The page: its frame, and which view stands in it.

import { useEffect, useRef, useState } from "preact/hooks";

import { Cinema } from "./cinema/view";
import { Devices } from "./devices/view";
import { Events } from "./events/view";
import { Latest } from "./events/latest";
import { Links } from "./charts/view";
import { MobilityFirst } from "./mobilityfirst/view";
import { Classes } from "./qos/classes";
import { Flows } from "./qos/flows";
import { Shown, type Showing } from "./qos/show";
import { Subflows } from "./qos/subflows";
import { Rules } from "./rules/view";
import { Transfers } from "./sos/view";
import { useChanges, useWorld } from "./state/hooks";
import type { Connection } from "./state/live";
import { Topology } from "./topology/panel";
import { Login } from "./ui/login";
import { Served } from "./ui/served";
import { ThemeChoice } from "./ui/theme";
import { useAddress, Views, type Address } from "./ui/views";

export function App() {
  const { session } = useWorld();
  useChanges(session);
  return session.wanted() ? <Login /> : <Dashboard key={session.token()} />;
}

function Dashboard() {
  const { live } = useWorld();
  useChanges(live);
  const address = useAddress();
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    void live.start();
    return () => live.end();
  }, [live]);
  // Not by a link: #main would be taken for the name of a view.
  const skip = (e: Event): void => {
    e.preventDefault();
    main.current?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to the network</a>
      <Header address={address} />
      <main id="main" ref={main} tabindex={-1}><Shows address={address} /></main>
    </>
  );
}

function Shows({ address: { view, rest } }: { address: Address }) {
  switch (view) {
    case "network": return <Network />;
    case "links": return <Links from={rest} />;
    case "sos": return <Served by="sos" name="SOS"><Transfers /></Served>;
    case "devices": return <Served by="handover" name="handover"><Devices /></Served>;
    case "channels": return <Served by="cinema" name="Cinema"><Cinema /></Served>;
    case "names": return <Served by="mobilityfirst" name="MobilityFirst"><MobilityFirst /></Served>;
    case "rules": return <Rules />;
    case "events": return <Events />;
  }
}

function Network() {
  const [showing, setShowing] = useState<Showing>({});
  return (
    <Shown.Provider value={{ showing, setShowing }}>
      <Topology route={showing.hovered?.route ?? showing.selected?.route} />
      <Served by="qos" name="QoS">
        <Classes />
        <Flows />
        <Subflows />
      </Served>
      <Latest />
    </Shown.Provider>
  );
}

const connections: Record<Connection, string> = { connecting: "Connecting", live: "Live", lost: "Not connected, trying again" };

function Header({ address }: { address: Address }) {
  const { live, session } = useWorld();
  const { value: status, problem } = live.status;
  return (
    <header class="top">
      <h1>Sluice</h1>
      <span class="soft">{status?.version}</span>
      <span class={`connection ${live.connection}`} role="status">{connections[live.connection]}</span>
      <Views current={address.view} />
      <nav aria-label="More"><a href="/docs/">API</a></nav>
      <ThemeChoice />
      <button type="button" onClick={() => session.logOut()}>{session.token() ? "Log out" : "Log in"}</button>
      {problem && <p class="error" role="status">The controller's state is not known: {problem.message}.</p>}
    </header>
  );
}
