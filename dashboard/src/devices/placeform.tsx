// Moves a device, or prepares a place for it.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Device, Order } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { Check } from "../ui/check";
import { described, Field } from "../ui/field";
import { Request } from "../ui/request";
import { Texts, valuesOf, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";
import { interfacesOf } from "./access";
import { forms, type Act } from "./orders";
import { SpotFields, type Chosen } from "./spotfields";

interface Props {
  device: Device;
  act: Act;
  /** order is the number of the order that was given, if one was. */
  done(message: string, order?: number): void;
  cancel(): void;
}

export function PlaceForm({ device, act, done, cancel }: Props) {
  const { client } = useWorld();
  const names = useNames();
  const form = forms[act];
  const [spot, setSpot] = useState<Chosen>({ switch: "", port: "" });
  const [mac, setMac] = useState("");
  const [force, setForce] = useState(false);
  const [values, setValues] = useState<Values>(form.given);
  const port = spot.switch || act === "prepare" ? { port: spot.switch && `${spot.switch}/${spot.port}` } : {};
  const request = useForm(["port", "mac", ...form.texts.map((t) => t.field)], async () => {
    const body = { ...port, ...(mac ? { mac } : {}), ...valuesOf(form.texts, values), ...(force ? { force } : {}) };
    const path = `/handover/devices/${step(device.id)}/${act}`;
    if (act === "prepare") {
      await client.post<Device>(path, body);
      done(`${names.said(body.port ?? "")} is prepared for ${device.id}.`);
      return;
    }
    const order = await client.post<Order>(path, body);
    done(`${device.id} was told to go on ${order.to ? `at ${names.said(order.to)}, ` : ""}by ${byWhich(device, order.mac)}.`, order.id);
  });
  const { fields } = request.errors;
  return (
    <Request title={form.title(device.id)} verb={form.verb} cancel={cancel} {...request}>
      <div class="fields">
        <SpotFields device={device} anywhere={form.anywhere} chosen={spot} errors={fields.get("port")} choose={setSpot} />
        <Field id="place-mac" label="Interface" hint="that it is to use there" errors={fields.get("mac")}>
          <select {...described("place-mac", fields.get("mac"))} value={mac} onChange={(e) => setMac(e.currentTarget.value)}>
            <option value="">{form.anyhow}</option>
            {interfacesOf(device).map((i) => <option key={i.mac} value={i.mac}>{i.words}{i.mac === device.at?.mac ? ", in use" : ""}</option>)}
          </select>
        </Field>
      </div>
      <Texts form="place" texts={form.texts} values={values} errors={fields} change={setValues} />
      {act === "move" && <Check label="Also if no program of the device listens now: the order is kept for 30 s" checked={force} change={setForce} />}
    </Request>
  );
}

const byWhich = (device: Device, mac: string): string => interfacesOf(device).find((i) => i.mac === mac)?.words ?? mac;
