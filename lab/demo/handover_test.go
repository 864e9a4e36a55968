package demo

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// TestHandoverDemo runs the whole demo, and then stops a second one half-way. It checks that
// neither leaves anything behind.
func TestHandoverDemo(t *testing.T) {
	live.Test(t)
	ownTempDir(t)
	o := HandoverOptions{Binary: selfbuild.Binary(t), Rate: 20e6, Delay: DefaultRadioDelay}
	t.Run("whole", func(t *testing.T) {
		var out bytes.Buffer
		o.Out = &out
		if err := RunHandover(t.Context(), o); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, want := range []string{"between operators", "horizontal", "UDP lost", "one socket, one address"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the demo does not say %q:\n%s", want, out.String())
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Error("there are escape sequences although nobody watches")
		}
		nothingLeft(t, handoverLab)
	})
	t.Run("stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o.Out = &stopAt{mark: "from the first move", stop: cancel}
		if err := RunHandover(ctx, o); !errors.Is(err, ErrStopped) {
			t.Errorf("a demo that was stopped returns %v", err)
		}
		nothingLeft(t, handoverLab)
	})
}
