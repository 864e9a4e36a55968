import { render } from "preact";

import { Client } from "./api/client";
import { App } from "./app";
import { WorldContext } from "./state/hooks";
import { Live } from "./state/live";
import { Session } from "./state/session";
import { restoreTheme } from "./ui/theme";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./charts/chart.css";

restoreTheme();
const session = new Session(sessionStorage);
const client = new Client(session);
const live = new Live(client);

render(
  <WorldContext.Provider value={{ client, live, session }}>
    <App />
  </WorldContext.Provider>,
  document.getElementById("page")!,
);
