// Edits one description of a flow: conditions, each a field and its value.

import { Errors } from "../ui/field";
import { condition, fields, type Condition } from "./match";

interface Props {
  /** Its path in the request, as problem documents name it: match, flows[0]. */
  path: string;
  title: string;
  conditions: Condition[];
  errors: Map<string, string[]>;
  change(conditions: Condition[]): void;
  remove?: (() => void) | undefined;
}

export function MatchEditor({ path, title, conditions, errors, change, remove }: Props) {
  const set = (key: number, part: Partial<Condition>): void => change(conditions.map((c) => (c.key === key ? { ...c, ...part } : c)));
  const unused = Object.keys(fields).find((f) => !conditions.some((c) => c.field === f));
  return (
    <fieldset class="match" aria-describedby={`${path}-error`}>
      <legend>{title}</legend>
      {conditions.map((c) => (
        <ConditionRow key={c.key} id={`${path}.${c.field}`} condition={c} errors={errors.get(`${path}.${c.field}`)}
          set={(part) => set(c.key, part)} remove={() => change(conditions.filter((other) => other.key !== c.key))} />
      ))}
      <Errors id={path} errors={errors.get(path)} />
      <div class="actions">
        {unused && <button type="button" onClick={() => change([...conditions, condition(unused)])}>Add a condition</button>}
        {remove && <button type="button" aria-label={`Remove ${title}`} onClick={remove}>Remove</button>}
      </div>
    </fieldset>
  );
}

interface RowProps {
  id: string;
  condition: Condition;
  errors: string[] | undefined;
  set(part: Partial<Condition>): void;
  remove(): void;
}

function ConditionRow({ id, condition: { field, value }, errors, set, remove }: RowProps) {
  return (
    <div class="condition">
      <select aria-label="Field" value={field} onChange={(e) => set({ field: e.currentTarget.value })}>
        {Object.keys(fields).map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
      <input
        aria-label={field} aria-invalid={Boolean(errors)} aria-describedby={`${id}-error`} placeholder={fields[field]} value={value}
        onInput={(e) => set({ value: e.currentTarget.value })}
      />
      <button type="button" aria-label={`Remove the condition ${field}`} onClick={remove}>×</button>
      <Errors id={id} errors={errors} />
    </div>
  );
}
