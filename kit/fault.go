package kit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/config"
)

// Fault is one field of an input that is wrong: its name, what was given, and what would
// be right.
type Fault struct {
	Field string
	Value any
	Want  string
}

// Faults is everything that is wrong with an input, which was refused whole. As an error
// it says so on one line.
type Faults []Fault

// Error lists the faults on one line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = fmt.Sprintf("%s: %v: want %s", x.Field, x.Value, x.Want)
	}
	return strings.Join(lines, "; ")
}

// Err is the faults as an error, or nil if there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Add notes that a field is wrong.
func (f *Faults) Add(field string, value any, want string, args ...any) {
	*f = append(*f, Fault{field, value, fmt.Sprintf(want, args...)})
}

// Check notes that a field is wrong unless ok.
func (f *Faults) Check(ok bool, field string, value any, want string, args ...any) {
	if !ok {
		f.Add(field, value, want, args...)
	}
}

// Below is the same faults of what is part of another input, as its field.
func (f Faults) Below(field string) Faults {
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

// Report reports the faults of a service's section of the configuration, which stands below a key.
func (f Faults) Report(k *config.Checker, key string) {
	for _, x := range f.Below(key) {
		k.Fail(x.Field, "not usable", x.Want)
	}
}

// ParseSpecs reads what stands in a section of the configuration below a field, by name. The
// faults name the field and the name.
func ParseSpecs[S, T any](field string, specs map[string]S, parse func(name string, spec S) (T, Faults)) (map[string]T, Faults) {
	out := map[string]T{}
	var faults Faults
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		v, wrong := parse(name, specs[name])
		faults = append(faults, wrong.Below(field+"."+name)...)
		out[name] = v
	}
	return out, faults
}
