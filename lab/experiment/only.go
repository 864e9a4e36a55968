package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// Only restricts parameters of an experiment to some values, by the parameter's name.
type Only map[string][]string

// ParseOnly parses settings like "rtt=50ms,100ms". It refuses names that the experiment does not
// have.
func ParseOnly(e Experiment, settings []string) (Only, error) {
	o := Only{}
	for _, s := range settings {
		name, values, found := strings.Cut(s, "=")
		if !found || values == "" {
			return nil, fmt.Errorf("%q: want NAME=VALUE, or several values between commas", s)
		}
		if !slices.Contains(e.Varies, name) {
			return nil, fmt.Errorf("%q: %s varies %s", s, e.Name, orNothing(e.Varies))
		}
		o[name] = append(o[name], strings.Split(values, ",")...)
	}
	return o, nil
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing that can be chosen"
	}
	return strings.Join(names, ", ")
}

// chosen returns the values that the user has selected, in the order of all.
func chosen[T any](o Only, name string, all []T, text func(T) string) ([]T, error) {
	wanted, restricted := o[name]
	if !restricted {
		return all, nil
	}
	var out []T
	var names []string
	for _, v := range all {
		names = append(names, text(v))
		if slices.Contains(wanted, text(v)) {
			out = append(out, v)
		}
	}
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return nil, fmt.Errorf("%s %q: there are %s", name, w, strings.Join(names, ", "))
		}
	}
	return out, nil
}

// chosenOr returns the values that the user has selected from all, or usual if the user has
// selected none.
func chosenOr[T any](o Only, name string, all, usual []T, text func(T) string) ([]T, error) {
	if _, restricted := o[name]; !restricted {
		return usual, nil
	}
	return chosen(o, name, all, text)
}
