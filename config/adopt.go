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

// Adopt returns the configuration that is in force once next has been read: c, with those settings
// of next that take effect without a restart. next must have the same services.
func (c *Controller) Adopt(next *Controller) *Controller {
	now := *c
	now.Log.Level = next.Log.Level
	now.API.TokenFile = next.API.TokenFile
	now.Network.Hosts.Pinned = next.Network.Hosts.Pinned
	now.Services = slices.Clone(c.Services)
	for i, x := range now.Services {
		now.Services[i].Section = x.Section.Adopt(next.Services[i].Section)
	}
	return &now
}

// Adopt returns the configuration that is in force once next has been read: a, with those settings
// of next that take effect without a restart.
func (a *Agent) Adopt(next *Agent) *Agent {
	now := *a
	now.Log.Level = next.Log.Level
	return &now
}

// Logging returns the settings of the log.
func (c *Controller) Logging() Log { return c.Log }

// Logging returns the settings of the log.
func (a *Agent) Logging() Log { return a.Log }

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
