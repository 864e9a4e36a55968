package check

import (
	"os/exec"
	"strings"
	"testing"
)

// labOnly begins the packages that the program sluice has no use for.
var labOnly = []string{
	"/lab", "/network/fake",
	"github.com/quic-go/", "gonum.org/v1/plot",
}

// TestProductHasNoLab looks at what is linked into a controller.
func TestProductHasNoLab(t *testing.T) {
	const module = "github.com/sluice-net/sluice"
	deps := func(program string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", program)
		cmd.Dir = repositoryRoot(t)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		return "\n" + string(out)
	}
	product, lab := deps("./cmd/sluice"), deps("./lab/cmd/sluice-lab")
	for _, p := range labOnly {
		if strings.HasPrefix(p, "/") {
			p = module + p
		}
		if at := strings.Index(product, "\n"+p); at >= 0 {
			pkg, _, _ := strings.Cut(product[at+1:], "\n")
			t.Errorf("sluice is linked with %s: it belongs to sluice-lab", pkg)
		}
		if !strings.Contains(lab, "\n"+p) && !strings.HasSuffix(p, "/network/fake") {
			t.Errorf("sluice-lab is not linked with %s: this test looks for nothing", p)
		}
	}
}
