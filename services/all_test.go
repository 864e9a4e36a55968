package services

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every setting of every program is documented, and the defaults are shown as they are read.
func TestSettingsAreDocumented(t *testing.T) {
	for _, k := range commands.Kinds(All()) {
		rows := strings.Split(config.Reference(k.Default()), "\n")[2:]
		for _, row := range rows {
			if cells := strings.Split(row, " | "); len(cells) > 2 && strings.TrimSpace(cells[2]) == "" {
				t.Errorf("%s: %s has no documentation", k.Name, cells[0])
			}
		}
		if len(rows) < 5 {
			t.Errorf("%s has %d settings", k.Name, len(rows))
		}
	}
}

// The default configuration of a controller with all services is valid, and reads back as it is
// shown.
func TestDefaultConfig(t *testing.T) {
	c := DefaultConfig()
	for name, text := range map[string]string{"example": config.Example(c), "show": config.Render(c)} {
		again := DefaultConfig()
		if err := config.Parse(config.Sources{File: name}, []byte(text), again); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if changed := config.Changed(c, again); len(changed) > 0 {
			t.Errorf("%s reads back with other values of %v", name, changed)
		}
	}
}
