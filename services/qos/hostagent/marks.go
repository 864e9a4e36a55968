package hostagent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
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

// mark makes the kernel mark SYNs that join a connection. unmark removes the table that does so.
func mark(ctx context.Context, dscp int) error { return nft(ctx, ruleset(dscp)) }
func unmark(ctx context.Context) error         { return nft(ctx, "delete table "+table) }

func nft(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("the mark is set by nftables, and there is no nft: apt-get install nftables: %w", err)
	case err != nil:
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
