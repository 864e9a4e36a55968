// The classes, their queues, and the form that requests one.

import { useWorld } from "../state/hooks";
import { routeOf } from "../topology/route";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { ClassForm } from "./classform";
import { columns, ClassRow, pathsOf } from "./classrow";
import { useRequests } from "../ui/userequests";
import { useCurrent } from "./show";

export function Classes() {
  const { live } = useWorld();
  const requests = useRequests();
  const { classes, stats } = live;
  useCurrent("class ", classes.value, (name) => {
    const c = classes.value.find((one) => one.name === name);
    return c && routeOf(pathsOf(c));
  });
  return (
    <Panel
      id="classes" title="Classes" problem={classes.problem ?? stats.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Request a class</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      <Paged
        caption="Classes; choose a path to keep it in the picture" columns={columns} items={classes.value}
        none={classes.at ? "There is no class: all traffic shares the links." : "Asking the controller."}
        row={(c) => <ClassRow key={c.name} of={c} queues={stats.value.get(c.name)?.queues} released={requests.done} />}
      />
      {requests.open && <ClassForm done={requests.done} cancel={requests.toggle} />}
    </Panel>
  );
}
