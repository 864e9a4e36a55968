package lab_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/sluice-net/sluice/lab"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestReferenceExampleComesUp builds the example of the reference page.
func TestReferenceExampleComesUp(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/topology.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no example")
	}
	for _, b := range blocks {
		topology, err := lab.Parse("topology.md", b[1])
		if err != nil {
			t.Fatal(err)
		}
		l := lab.New(t, topology)
		forwardAsBridge(t, l, "s1")
		transfer(t, l.Host("client"), l.Host("server"), l.Host("server").Addr().String(), 1e5)
	}
}
