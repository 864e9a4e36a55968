package hostagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
)

// table is the agent's own nftables table.
const table = "inet sluice_host"

// nftTimeout bounds a call of nft.
const nftTimeout = 10 * time.Second

// ruleset returns the nftables rules that mark SYNs that join a connection, and change no other
// packets. They replace the table of an agent that was killed.
func ruleset(dscp int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "add table %s\ndelete table %s\ntable %s {\n\tchain output {\n\t\ttype filter hook output priority mangle; policy accept;\n", table, table, table)
	for _, ip := range []string{"ip", "ip6"} {
		fmt.Fprintf(&b, "\t\ttcp option mptcp subtype 1 tcp flags & (syn | ack) == syn %s dscp set %d\n", ip, dscp)
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}

// marks keeps the agent's table, which makes the kernel mark SYNs that join a connection.
type marks struct {
	dscp int
	// listing is the table as nft lists it.
	listing string
}

// install installs the table.
func (m *marks) install(ctx context.Context) (err error) {
	if _, err := nft(ctx, ruleset(m.dscp), "-f", "-"); err != nil {
		return err
	}
	m.listing, err = nft(ctx, "", listTable...)
	return err
}

var listTable = append([]string{"--stateless", "list", "table"}, strings.Fields(table)...)

// thing returns the table as a thing that is kept as declared.
func (m *marks) thing() drift.Thing {
	return drift.Thing{Name: "nftables table " + table, After: []drift.Notification{drift.NFTables}, Restore: m.restore}
}

// restore installs the table again if it is gone or was changed. The kernel replaces it as a whole,
// so connections do not notice.
func (m *marks) restore(ctx context.Context) (differences int, err error) {
	now, err := nft(ctx, "", listTable...)
	if err == nil && now == m.listing {
		return 0, nil
	}
	if err := m.install(ctx); err != nil { // an error of the listing, too, usually means that there is no table
		return 1, err
	}
	return 1, nil
}

// remove removes the table, if there is one.
func (m *marks) remove(ctx context.Context) error {
	_, err := nft(ctx, fmt.Sprintf("add table %s\ndelete table %s\n", table, table), "-f", "-")
	return err
}

// nft runs nft with a text as its input, and returns its output.
func nft(ctx context.Context, text string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(text)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("the mark is set by nftables, and there is no nft: apt-get install nftables: %w", err)
	case err != nil:
		return "", fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(failure.Bytes()))
	}
	return out.String(), nil
}
