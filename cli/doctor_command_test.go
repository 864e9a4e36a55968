package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
)

func TestMobileCheck(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mobile.yaml")
	if err := os.WriteFile(file, []byte("interfaces: {none0: {}}\nvni: {mac: '02:00:00:00:00:01'}\nstate_dir: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := sluice(t, "doctor", "--role", "mobile", "--dir", dir)
	for _, want := range []string{"addresses to register", "02:00:00:00:00:01", "datapath", "interface none0", "none of them can be used"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if code != command.ExitFailed {
		t.Errorf("code %d", code)
	}
}
