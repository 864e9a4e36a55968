package commands

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fieldsOf returns the fields of T that requests and answers have, including those of embedded
// structs.
func fieldsOf(t reflect.Type) (out []field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !f.Anonymous {
			out = append(out, field{StructField: f, name: name, optional: strings.HasPrefix(options, "omit")})
		}
	}
	return out
}

// field is a field of a struct with its name in JSON.
type field struct {
	reflect.StructField
	name     string
	optional bool // JSON leaves out the zero value
}

// text returns the field's value in a struct as text for people.
func (f field) text(of reflect.Value) string {
	v := of.FieldByIndex(f.Index)
	if f.optional && v.IsZero() {
		return "-"
	}
	return valueText(f.name, v)
}

// plain returns the field's value in a struct as JSON has it, without quotes, or "" if JSON leaves
// it out.
func (f field) plain(of reflect.Value) string {
	v := of.FieldByIndex(f.Index)
	if f.optional && v.IsZero() {
		return ""
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(b), `"`)
}

// heading returns the heading for a name. It leaves out the unit, which the values show.
func heading(name string) string {
	for _, unit := range []string{"_bits_per_second", "_milliseconds", "_per_second"} {
		name = strings.TrimSuffix(name, unit)
	}
	return strings.ToUpper(strings.ReplaceAll(name, "_", " "))
}

// column is a column of a table of structs.
type column struct {
	heading string
	text    func(reflect.Value) string
}

// columnsOf returns the columns of a table of t. Each word describes one column: the name of a
// field; names that lead to a nested field, like "load.cpu"; or several fields whose texts are
// joined, like "switch/port". "load.cpu=CORES" sets the heading. Without words it returns all
// fields.
func columnsOf(t reflect.Type, words string) (out []column) {
	if words == "" {
		words = strings.Replace(strings.Join(namesOf(t), " "), "switch port ", "switch/port ", 1)
	}
	for word := range strings.FieldsSeq(words) {
		names, title, titled := strings.Cut(word, "=")
		var parts []func(reflect.Value) string
		for path := range strings.SplitSeq(names, "/") {
			text, last := nestedField(t, strings.Split(path, "."))
			parts = append(parts, text)
			if !titled {
				title = heading(last)
			}
		}
		out = append(out, column{strings.ReplaceAll(title, "_", " "), func(v reflect.Value) string {
			texts := make([]string, len(parts))
			for i, part := range parts {
				texts[i] = part(v)
			}
			return strings.Join(texts, "/")
		}})
	}
	return out
}

// nestedField returns a function for the text of a nested field, and the field's name.
func nestedField(t reflect.Type, names []string) (text func(reflect.Value) string, last string) {
	all := fieldsOf(t)
	i := slices.IndexFunc(all, func(f field) bool { return f.name == names[0] })
	if i < 0 {
		panic(fmt.Sprintf("cli: %v has no field %q", t, names[0])) // every command is made by a test
	}
	f := all[i]
	if len(names) == 1 {
		return f.text, f.name
	}
	rest, last := nestedField(indirect(f.Type), names[1:])
	return func(v reflect.Value) string {
		v = reflect.Indirect(v.FieldByIndex(f.Index))
		if !v.IsValid() { // a nil pointer
			return "-"
		}
		return rest(v)
	}, last
}

// Table returns a function that prints a table of structs with the given columns: words like "name
// state load.cpu=CORES" with the fields' names in JSON. Without words it prints all fields.
func Table[T any](columns string) func(io.Writer, []T) {
	all := columnsOf(reflect.TypeFor[T](), columns)
	return func(w io.Writer, rows []T) { writeTable(w, all, reflect.ValueOf(rows)) }
}

// writeTable prints a list of structs.
func writeTable(w io.Writer, columns []column, rows reflect.Value) {
	line := func(text func(column) string) {
		words := make([]string, len(columns))
		for i, c := range columns {
			words[i] = text(c)
		}
		fmt.Fprintln(w, strings.Join(words, "\t"))
	}
	line(func(c column) string { return c.heading })
	for i := range rows.Len() {
		line(func(c column) string { return c.text(rows.Index(i)) })
	}
}

// Fields prints the fields of a struct that have a value, and lists of structs as tables below
// them.
func Fields[T any](w io.Writer, x T) {
	v := reflect.ValueOf(&x).Elem()
	var tables []field
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.Index)
		switch {
		case f.optional && value.IsZero():
		case isTable(f.Type):
			tables = append(tables, f)
		case isSentences(value):
			for _, line := range value.Interface().([]string) {
				fmt.Fprintf(w, "%s\t%s\n", strings.ToLower(heading(f.name)), line)
			}
		case f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Struct:
			for _, k := range slices.SortedFunc(value.Seq(), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
				fmt.Fprintf(w, "%s %s\t%s\n", strings.ToLower(heading(f.name)), k, valueText("", value.MapIndex(k)))
			}
		default:
			fmt.Fprintf(w, "%s\t%s\n", strings.ToLower(heading(f.name)), valueText(f.name, value))
		}
	}
	for _, f := range tables {
		if rows := v.FieldByIndex(f.Index); rows.Len() > 0 {
			fmt.Fprintf(w, "\n%s\n", heading(f.name))
			writeTable(w, columnsOf(f.Type.Elem(), ""), rows)
		}
	}
}

// isSentences reports whether a value is a list of texts one of which has several words.
func isSentences(v reflect.Value) bool {
	list, ok := v.Interface().([]string)
	return ok && slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, " ") })
}

// isTable reports whether a type is a list of structs that have no text form of their own.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !hasText(t.Elem()) && !isPlace(t.Elem())
}

func hasText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[fmt.Stringer]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// isPlace reports whether a type is a port of a switch, or a hop of a path.
func isPlace(t reflect.Type) bool {
	fields := fieldsOf(t)
	for _, f := range fields {
		if !slices.Contains([]string{"switch", "port", "in", "out"}, f.name) {
			return false
		}
	}
	return len(fields) > 0
}

// percentages lists the fields that are printed in percent.
var percentages = []string{"loss", "queue_loss", "error", "gap"}

// valueText returns the value of the field with a name as text for people.
func valueText(name string, v reflect.Value) string {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "-"
	}
	v = reflect.Indirect(v)
	if t, ok := v.Interface().(time.Time); ok {
		if t.IsZero() {
			return "-"
		}
		return t.Local().Format(time.DateTime)
	}
	if v.Type().Name() == "Duration" && v.CanInt() {
		return time.Duration(v.Int()).Round(10 * time.Microsecond).String()
	}
	if hasText(v.Type()) {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		if s, ok := p.Interface().(fmt.Stringer); ok {
			return s.String()
		}
		b, err := p.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	switch v.Kind() {
	case reflect.Struct:
		return structText(v)
	case reflect.Slice, reflect.Array, reflect.Map:
		return listText(name, v)
	case reflect.String:
		return cmp.Or(v.String(), "-")
	}
	if number := reflect.TypeFor[float64](); v.Kind() != reflect.Bool && v.CanConvert(number) {
		return numberText(name, v.Convert(number).Float())
	}
	return fmt.Sprint(v.Interface())
}

func numberText(name string, n float64) string {
	switch {
	case strings.Contains(name, "bits_per_second"):
		return bitRate(n)
	case strings.HasSuffix(name, "_milliseconds"):
		return fmt.Sprintf("%.2f ms", n)
	case slices.Contains(percentages, name):
		return fmt.Sprintf("%.3g %%", 100*n)
	}
	return strconv.FormatFloat(math.Round(1000*n)/1000, 'f', -1, 64)
}

func listText(name string, v reflect.Value) string {
	var words []string
	if v.Kind() == reflect.Map {
		keys := map[string]reflect.Value{}
		for k, value := range v.Seq2() {
			keys[valueText("", k)] = value
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			words = append(words, k+"="+valueText(name, keys[k]))
		}
		return cmp.Or(strings.Join(words, ", "), "-")
	}
	for i := range v.Len() {
		words = append(words, valueText(name, v.Index(i)))
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

// structText returns a struct on one line: a place as SWITCH/PORT or SWITCH/IN>OUT, and any other
// struct as names and values.
func structText(v reflect.Value) string {
	place := isPlace(v.Type())
	var words []string
	for _, f := range fieldsOf(v.Type()) {
		text := f.text(v)
		switch {
		case place && f.name != "switch" && text == "-": // the path begins or ends here
		case place:
			words = append(words, text)
		case text != "-":
			words = append(words, f.name+"="+text)
		}
	}
	if place {
		first, rest := words[0], strings.Join(words[1:], ">")
		return strings.TrimSuffix(first+"/"+rest, "/")
	}
	return strings.Join(words, " ")
}

// bitRate returns a measured rate with three digits.
func bitRate(bits float64) string {
	for _, u := range []struct {
		n    float64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if bits >= u.n {
			return fmt.Sprintf("%.3g %s", bits/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.0f bit/s", bits)
}

// Names returns the names of the fields of T in JSON.
func Names[T any]() []string { return namesOf(reflect.TypeFor[T]()) }

// Values returns the values of x's fields as JSON has them, without quotes, in the order of Names.
// The value is empty for a field that JSON leaves out.
func Values[T any](x T) (all []string) {
	for _, f := range fieldsOf(reflect.TypeFor[T]()) {
		all = append(all, f.plain(reflect.ValueOf(x)))
	}
	return all
}
