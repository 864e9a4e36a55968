package api

import (
	"context"
	"slices"
)

// tokenIdentity begins the identity of who has shown a token.
const tokenIdentity = "token:"

// tokenSet are the tokens that are accepted at one time.
type tokenSet struct {
	all       []Token
	withdrawn chan struct{} // closed when they are replaced by others
}

func newTokenSet(all []Token) *tokenSet {
	return &tokenSet{slices.Clone(all), make(chan struct{})}
}

// SetTokens replaces the tokens that are accepted. Requests that are under way go on, but
// streams of events that were opened by a token end: who has one of the new ones opens
// it again. Tokens that are the same as before change nothing. It is not to be called
// from two goroutines at once.
func (a *API) SetTokens(all []Token) {
	old := a.tokens.Load()
	if slices.Equal(old.all, all) {
		return
	}
	a.tokens.Store(newTokenSet(all))
	close(old.withdrawn)
}

type tokensKey struct{}

// withdrawn is closed when the token has been replaced by which the request came that the
// context belongs to; it is nil without one.
func withdrawn(ctx context.Context) <-chan struct{} {
	if set, ok := ctx.Value(tokensKey{}).(*tokenSet); ok {
		return set.withdrawn
	}
	return nil
}
