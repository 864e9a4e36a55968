package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// ErrPartly reports that only some of the changes of a reloaded configuration have taken effect.
var ErrPartly = errors.New("some of it has taken effect; SIGHUP tries the rest again")

// Adopt returns the configuration that is in force once next has been read: a copy of now with those
// settings of next that take effect without a restart. These have the tag reload:"yes". Those of a
// section that is not enabled in both configurations keep their values. T is a pointer to a
// configuration; for that of a controller, both must have the same services. Adopt changes neither.
func Adopt[T Checked](now, next T) T {
	adopted := reflect.New(reflect.TypeOf(now).Elem())
	adopted.Elem().Set(reflect.ValueOf(now).Elem())
	if c, ok := adopted.Interface().(*Controller); ok {
		c.Services = slices.Clone(c.Services)
		for i, s := range c.Services {
			section := reflect.New(reflect.TypeOf(s.Section).Elem())
			section.Elem().Set(reflect.ValueOf(s.Section).Elem())
			c.Services[i].Section = section.Interface().(Section)
		}
	}
	adopt(adopted.Elem(), reflect.ValueOf(next).Elem())
	return adopted.Interface().(T)
}

func adopt(now, next reflect.Value) {
	ours, theirs := fieldsOf(now), fieldsOf(next)
	for i, f := range ours {
		if f.name == "enabled" && !(f.value.Bool() && theirs[i].value.Bool()) {
			return
		}
	}
	for i, f := range ours {
		switch {
		case reloads(f.tag):
			f.value.Set(theirs[i].value)
		case isSection(f.value.Type()):
			adopt(f.value, theirs[i].value)
		}
	}
}

// Reloadable returns the keys of the settings that take effect without a restart.
func Reloadable(c Checked) (keys []string) {
	walk(reflect.ValueOf(c).Elem(), "", func(s setting) {
		if reloads(s.tag) {
			keys = append(keys, s.key)
		}
	})
	return keys
}

// reloads reports whether a setting takes effect without a restart.
func reloads(tag reflect.StructTag) bool { return tag.Get("reload") == "yes" }

// Logging returns the settings of the log.
func (c *Controller) Logging() Log { return c.Log }

// Logging returns the settings of the log.
func (a *Agent) Logging() Log { return a.Log }

// Agent returns a.
func (a *Agent) Agent() *Agent { return a }

// Changed lists the keys in which two configurations of one kind differ, except for those in
// exclude. It does not compare secrets.
func Changed(a, b any, exclude ...string) []string {
	out := []string{}
	differences("", Plain(a), Plain(b), func(key string) {
		if !slices.Contains(exclude, key) {
			out = append(out, key)
		}
	})
	return out
}

// differences calls report for each key below key in which a and b differ.
func differences(key string, a, b any, report func(string)) {
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		if !reflect.DeepEqual(a, b) {
			report(key)
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
		differences(strictyaml.Join(key, name), x[name], y[name], report)
	}
}
