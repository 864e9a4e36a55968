package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// Changed lists the keys in which two configurations of one kind differ, but for those
// that are left out. Secrets are not compared.
func Changed(a, b any, but ...string) []string {
	out := []string{}
	differences("", Plain(a), Plain(b), func(key string) {
		if !slices.Contains(but, key) {
			out = append(out, key)
		}
	})
	return out
}

func differences(key string, a, b any, tell func(string)) {
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		if !reflect.DeepEqual(a, b) {
			tell(key)
		}
		return
	}
	all := map[string]bool{}
	for name := range x {
		all[name] = true
	}
	for name := range y {
		all[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		differences(strictyaml.Join(key, name), x[name], y[name], tell)
	}
}
