package demo

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// TestNames runs the whole demo. It checks that everything arrives, whatever happens to the phone,
// and that nothing is left behind.
func TestNames(t *testing.T) {
	live.Test(t)
	ownTempDir(t)
	var out bytes.Buffer
	if err := RunNames(t.Context(), NamesOptions{Out: &out, Binary: selfbuild.Binary(t)}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"moves to the second", "changes to the other domain", "are equal", "the depot keeps them", "is switched off", "it has all of them", "the same inside"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not say %q:\n%s", want, out.String())
		}
	}
	nothingLeft(t, namesLab)
	t.Log(out.String())
}
