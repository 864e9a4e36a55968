package rule

import "fmt"

// Shadowing names an owner whose rules come before (shadow) those of the owner who asks, for
// some of the same packets. docs/topics/pipeline.md says what happens to such packets.
type Shadowing struct {
	Owner string
	// Name is the name of one of its rules, and Names is how many names its rules have.
	Name  string
	Names int
	// OneTable and Tables are true if such rules are on switches with one table, and with
	// several. With several tables only the path is shadowed: marks remain effective.
	OneTable, Tables bool
	// Rewrites is true if one of these rules changes headers of the packets, so that later
	// switches see different headers.
	Rewrites bool
}

// Notes returns a sentence for each owner whose rules come first. Each ends with means, a text that
// explains the consequence for the owner who asks.
func Notes(all []Shadowing, means string) (notes []string) {
	for _, o := range all {
		notes = append(notes, o.String()+": "+means)
	}
	return notes
}

// String returns a sentence that names the owner and its rules.
func (o Shadowing) String() string {
	if o.Names == 1 {
		return fmt.Sprintf("%s comes first for packets that both are for (rules %s)", o.Owner, o.Name)
	}
	return fmt.Sprintf("%s comes first for packets that both are for (rules %s and %d more)", o.Owner, o.Name, o.Names-1)
}
