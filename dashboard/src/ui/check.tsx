// A box to tick, with its label.

interface Props {
  label: string;
  checked: boolean;
  change(checked: boolean): void;
}

export const Check = ({ label, checked, change }: Props) => (
  <label class="inline">
    <input type="checkbox" checked={checked} onChange={(e) => change(e.currentTarget.checked)} />
    {label}
  </label>
);
