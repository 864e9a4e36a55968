package nodeapi

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// proofPurpose begins what is signed, so that it is nothing else: owners of names sign other things, too.
const proofPurpose = "sluice: a node has this name, 1\x00"

// nonceSize is how many bytes of a challenge are random.
const nonceSize = 32

// Challenge is what a node is to sign, which nobody has seen before. A node answers its controller alone.
type Challenge struct {
	Nonce []byte `json:"nonce"`
}

// NewChallenge returns one.
func NewChallenge() Challenge {
	c := Challenge{make([]byte, nonceSize)}
	_, _ = rand.Read(c.Nonce) // never fails
	return c
}

func (c *Challenge) signed() []byte { return append([]byte(proofPurpose), c.Nonce...) }

// Proof is a challenge that the owner of a name has signed.
type Proof struct {
	Key       []byte `json:"key"` // Ed25519
	Signature []byte `json:"signature"`
}

// Prove answers a challenge with the key of a name.
func (c *Challenge) Prove(key ed25519.PrivateKey) Proof {
	return Proof{Key: key.Public().(ed25519.PublicKey), Signature: ed25519.Sign(key, c.signed())}
}

// Verify says whose name a proof shows, if it answers a challenge; the error wraps record.ErrSignature.
func (c *Challenge) Verify(p Proof) (name frame.GUID, err error) {
	if len(p.Key) != ed25519.PublicKeySize || !ed25519.Verify(p.Key, c.signed(), p.Signature) {
		return name, fmt.Errorf("proof of a node's name: %w", record.ErrSignature)
	}
	return record.NameOf(p.Key), nil
}
