// Form fields made from a model's capability record.

function field(id, label, help, control) {
  const box = document.createElement("div");
  box.className = "field";
  const caption = document.createElement("label");
  caption.htmlFor = control.id = id;
  caption.textContent = label;
  const note = document.createElement("small");
  note.id = `${id}-help`;
  note.textContent = help;
  control.setAttribute("aria-describedby", note.id);
  box.append(caption, control, note);
  return box;
}

function choice(values) {
  const select = document.createElement("select");
  for (const [value, text] of values) select.add(new Option(text, value));
  return select;
}

const words = (name) => name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase());

function optionControl(option) {
  if (option.type === "bool") {
    const standard = option.default === null ? "the model's choice" : option.default ? "on" : "off";
    return choice([["", `default: ${standard}`], ["true", "on"], ["false", "off"]]);
  }
  const input = document.createElement("input");
  input.placeholder = option.default ?? "";
  if (option.type === "str") return input;
  input.type = "number";
  input.step = option.type === "int" ? "1" : "any";
  if (option.minimum !== null) input.min = option.minimum;
  if (option.maximum !== null) input.max = option.maximum;
  return input;
}

// Fields for the model's options, seed first.
export function showOptions(box, options) {
  const order = Object.values(options).sort((a, b) => (b.name === "seed") - (a.name === "seed"));
  box.replaceChildren(...order.map((o) => field(`option-${o.name}`, words(o.name), o.help, optionControl(o))));
}

// The options that were filled in.
export function readOptions(options) {
  const values = {};
  for (const option of Object.values(options)) {
    const { value } = document.getElementById(`option-${option.name}`);
    if (value === "") continue;
    if (option.type === "bool") values[option.name] = value === "true";
    else values[option.name] = option.type === "str" ? value : Number(value);
  }
  return values;
}

// Fields for what an edit needs to know.
export function showSlots(box, edit) {
  const controls = (edit?.slots ?? []).map((slot) => {
    const control = slot.choices ? choice(slot.choices.map((c) => [c, c])) : document.createElement("input");
    if (slot.default !== null) control.value = slot.default;
    return field(`slot-${slot.name}`, words(slot.name), slot.help, control);
  });
  box.replaceChildren(...controls);
}

export function readSlots(edit) {
  const slots = (edit?.slots ?? []).map((s) => [s.name, document.getElementById(`slot-${s.name}`).value]);
  return Object.fromEntries(slots.filter(([, value]) => value !== ""));
}
