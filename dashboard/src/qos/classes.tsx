// The classes, their queues, and the form that requests one.

import { useWorld } from "../state/hooks";
import { Head } from "../ui/head";
import { Panel } from "../ui/panel";
import { ClassForm } from "./classform";
import { columns, ClassRow } from "./classrow";
import { useRequests } from "./userequests";

export function Classes() {
  const { live } = useWorld();
  const requests = useRequests();
  const { classes, stats } = live;
  return (
    <Panel
      id="classes" title="Classes" problem={classes.problem ?? stats.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Request a class</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      {classes.value.length === 0 && <p class="soft">There is no class: all traffic shares the links.</p>}
      {classes.value.length > 0 && (
        <div class="scroll">
          <table>
            <caption class="soft">Choose a path to keep it in the picture.</caption>
            <Head columns={columns} />
            <tbody>
              {classes.value.map((c) => <ClassRow key={c.name} of={c} queues={stats.value.get(c.name)?.queues} released={requests.done} />)}
            </tbody>
          </table>
        </div>
      )}
      {requests.open && <ClassForm done={requests.done} cancel={requests.toggle} />}
    </Panel>
  );
}
