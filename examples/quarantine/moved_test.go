package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
)

// The example moved into the tree, as services/quarantine, is one of Sluice's own services by one
// line in services/all.go: the program has its commands, and the API its operations.
func TestMovedIn(t *testing.T) {
	live.Test(t) // it links the program
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(from, to string, changes ...string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(changes...).Replace(string(b))
		name := filepath.Join(dir, strings.ReplaceAll(to, "/", "_"))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, to)] = name
	}
	put("examples/quarantine/service.go", "services/quarantine/service.go", "package main", "package quarantine")
	put("examples/quarantine/main.go", "services/quarantine/agent.go", "package main", "package quarantine",
		"func main() { os.Exit(cli.Main(append(services.All(), service()))) }", "", "func service()", "func Service()",
		"\t\"os\"\n", "", "\t\"github.com/sluice-net/sluice/cli\"\n", "", "\t\"github.com/sluice-net/sluice/services\"\n", "")
	put("services/all.go", "services/all.go", "\t\tmobilityfirst.Service(),\n", "\t\tmobilityfirst.Service(),\n\t\tquarantine.Service(),\n",
		"import (\n", "import (\n\t\"github.com/sluice-net/sluice/services/quarantine\"\n")
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sluice")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	run("go", "build", "-overlay", file, "-o", program, "./cmd/sluice")
	if help := run(program, "quarantine", "--help"); !strings.Contains(help, "agents") || !strings.Contains(help, "remove") {
		t.Errorf("its commands are missing: %s", help)
	}
	run(program, "docs", "--dir", filepath.Join(dir, "reference"))
	document, err := os.ReadFile(filepath.Join(dir, "reference", "openapi.yaml"))
	if err != nil || !strings.Contains(string(document), "/api/v1/quarantine/hosts/{name}:") {
		t.Errorf("its operations are not in the OpenAPI document (%v)", err)
	}
}
