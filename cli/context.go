package cli

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/sluice-net/sluice/config"
)

const (
	contextsVariable = "SLUICE_CONTEXTS"
	contextsFileIs   = "`~/.config/sluice/contexts.yaml` unless `SLUICE_CONTEXTS` names another"
)

// contexts reads the operator's file. Who has no home has none.
func contexts() (*config.Contexts, error) {
	file := os.Getenv(contextsVariable)
	if dir, err := os.UserConfigDir(); file == "" && err == nil {
		file = filepath.Join(dir, "sluice", "contexts.yaml")
	}
	return config.LoadContexts(file)
}

// useContext takes the connection from a context. One that is asked for stands in place
// of the environment, and flags go over it; the current one counts only where neither
// says anything of a connection. So what opens one controller is never sent to another
// because a variable was left set.
func (a *App) useContext() error {
	if a.context == "" && a.anyGiven() {
		return nil
	}
	all, err := contexts()
	if err != nil {
		return err
	}
	name := cmp.Or(a.context, all.Current)
	if name == "" {
		return nil
	}
	one, err := all.Get(name)
	if err != nil {
		return err
	}
	a.context = name
	from := map[string]string{"server": one.Server, "token-file": one.TokenFile, "ca": one.CA, "cert": one.Cert, "key": one.Key}
	for _, s := range a.settings() {
		if !a.flags.Changed(s.flag) {
			*s.to = from[s.flag]
		}
	}
	return nil
}

// anyGiven says whether a flag or the environment says anything of the connection.
func (c *connection) anyGiven() bool {
	if os.Getenv("SLUICE_TOKEN") != "" {
		return true
	}
	for _, s := range c.settings() {
		if c.flags.Changed(s.flag) || os.Getenv(s.env) != "" {
			return true
		}
	}
	return false
}
