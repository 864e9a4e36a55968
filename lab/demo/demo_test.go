package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
)

// TestDemo runs the whole demo with a smaller file and a shorter link, and then stops a second one
// half-way. It checks that neither leaves anything behind.
func TestDemo(t *testing.T) {
	live.Test(t)
	ownTempDir(t)
	o := Options{Binary: selfbuild.Binary(t), Size: 5e6, Line: lab.WANOptions{Rate: 100e6, RTT: 20 * time.Millisecond, Loss: -1}}
	t.Run("whole", func(t *testing.T) {
		var out bytes.Buffer
		o.Out = &out
		if err := Run(t.Context(), o); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, want := range []string{"direct  [####", "SOS     [####", "again   [####", "server talked to", "times as fast"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the demo does not say %q:\n%s", want, out.String())
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Error("there are escape sequences although nobody watches")
		}
		nothingLeft(t, labName)
	})
	t.Run("stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o.Out = &stopAt{mark: "Downloading", stop: cancel}
		if err := Run(ctx, o); !errors.Is(err, ErrStopped) {
			t.Errorf("a demo that was stopped returns %v", err)
		}
		nothingLeft(t, labName)
	})
}

// ownTempDir gives the test its own folder for temporary files, so that files of a demo that
// somebody else runs on the machine do not count as left behind.
func ownTempDir(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "demo") // The path of t.TempDir is too long for sockets.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
}

// stopAt calls stop when the mark is written.
type stopAt struct {
	mark string
	stop func()
}

func (s *stopAt) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.mark) {
		s.stop()
	}
	return len(b), nil
}

func nothingLeft(t *testing.T, name string) {
	t.Helper()
	for _, pattern := range []string{"/run/netns/sluice-" + name + "-*", filepath.Join(os.TempDir(), "sluice-demo-*"), filepath.Join(lab.DefaultRunDir, name)} {
		left, err := filepath.Glob(pattern)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}
