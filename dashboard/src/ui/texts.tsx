// The single values of a request: what they are called, and how they are read.

import { described, Field } from "./field";

export interface Text {
  field: string;
  label: string;
  hint: string;
  /** Whether it is left out of the request while it is empty. */
  optional?: boolean;
  /** Whether it is hidden while it is typed. */
  secret?: boolean;
  read(text: string): unknown;
}

export const word = (text: string): string => text.trim();

/** Several values, with commas or blanks between. */
export const list = (text: string): string[] => text.split(/[\s,]+/).filter((x) => x !== "");

export type Values = Record<string, string>;

/** What is sent. Texts that make no sense go as they are: the server says what is wrong. */
export function valuesOf(texts: Text[], values: Values): Record<string, unknown> {
  const given = texts.filter((t) => !t.optional || values[t.field]?.trim());
  return Object.fromEntries(given.map((t) => [t.field, t.read(values[t.field] ?? "")]));
}

interface Props {
  /** Begins the identifiers of the inputs. */
  form: string;
  texts: Text[];
  values: Values;
  errors: Map<string, string[]>;
  change(values: Values): void;
  /** Whether secrets are shown. */
  shown?: boolean;
}

export function Texts({ form, texts, values, errors, change, shown = false }: Props) {
  return (
    <div class="fields">
      {texts.map(({ field, label, hint, optional, secret }) => {
        const id = `${form}-${field}`;
        return (
          <Field key={field} id={id} label={label} hint={hint} errors={errors.get(field)}>
            <input
              {...described(id, errors.get(field))} name={field} type={secret && !shown ? "password" : "text"} autocomplete={secret ? "new-password" : "off"} spellcheck={!secret} aria-required={!optional} value={values[field] ?? ""}
              onInput={(e) => change({ ...values, [field]: e.currentTarget.value })}
            />
          </Field>
        );
      })}
    </div>
  );
}
