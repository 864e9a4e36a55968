package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/controller/networkapi"
)

// dpidPattern is a datapath identifier as answers have it.
var dpidPattern = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// named is a table that has, in the place of switches' identifiers, the names that the
// configuration has for them; commands take both. Switches of which the controller tells
// no name keep their identifier.
func named(ctx context.Context, c *client.Client, table func(io.Writer)) func(io.Writer) {
	return func(w io.Writer) {
		var text bytes.Buffer
		table(&text)
		if !dpidPattern.Match(text.Bytes()) {
			fmt.Fprint(w, text.String())
			return
		}
		names := map[string]string{}
		var switches []networkapi.Switch
		_ = c.Get(ctx, networkPath+"switches", &switches) // without it there are no names
		for _, s := range switches {
			names[s.DPID] = s.Name
		}
		fmt.Fprint(w, dpidPattern.ReplaceAllStringFunc(text.String(), func(dpid string) string {
			if names[dpid] == "" {
				return dpid
			}
			return names[dpid]
		}))
	}
}
