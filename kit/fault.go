package kit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/config"
)

// Fault describes one wrong field of an input: its name, the given value, and what is wanted
// instead.
type Fault struct {
	Field string
	Value any
	Want  string
}

// Faults lists all wrong fields of an input. The input was refused as a whole.
type Faults []Fault

// Error lists the faults on one line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = fmt.Sprintf("%s: %v: want %s", x.Field, x.Value, x.Want)
	}
	return strings.Join(lines, "; ")
}

// Err returns the faults as an error, or nil if there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Add adds a fault.
func (f *Faults) Add(field string, value any, want string, args ...any) {
	*f = append(*f, Fault{field, value, fmt.Sprintf(want, args...)})
}

// Check adds a fault unless ok is true.
func (f *Faults) Check(ok bool, field string, value any, want string, args ...any) {
	if !ok {
		f.Add(field, value, want, args...)
	}
}

// WithPrefix returns the faults of an input that is a field of another one: the fields' names are
// prefixed with that field's name.
func (f Faults) WithPrefix(field string) Faults {
	out := make(Faults, len(f))
	for i, x := range f {
		if out[i] = x; x.Field == "" {
			out[i].Field = field
		} else {
			out[i].Field = field + "." + x.Field
		}
	}
	return out
}

// Report adds the faults to k, as faults of the configuration section with the given key.
func (f Faults) Report(k *config.Checker, key string) {
	for _, x := range f.WithPrefix(key) {
		k.Fail(x.Field, "not usable", x.Want)
	}
}

// ParseSpecs parses the named specifications in one field of a section of the configuration. The
// faults name the field and the specification.
func ParseSpecs[S, T any](field string, specs map[string]S, parse func(name string, spec S) (T, Faults)) (map[string]T, Faults) {
	out := map[string]T{}
	var faults Faults
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		v, wrong := parse(name, specs[name])
		faults = append(faults, wrong.WithPrefix(field+"."+name)...)
		out[name] = v
	}
	return out, faults
}
