// Verifies JSON Web Tokens with a key set, by the RFCs and the standard library alone.
package main

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"strings"
)

type key struct {
	Kty, Crv, X, Y, N, E, Kid, Alg, Use string
}

func bytes(text string) []byte {
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		panic(err)
	}
	return decoded
}

func number(text string) *big.Int { return new(big.Int).SetBytes(bytes(text)) }

func thumbprint(k key) string {
	var canonical string
	switch k.Kty {
	case "RSA":
		canonical = fmt.Sprintf(`{"e":"%s","kty":"RSA","n":"%s"}`, k.E, k.N)
	case "EC":
		canonical = fmt.Sprintf(`{"crv":"%s","kty":"EC","x":"%s","y":"%s"}`, k.Crv, k.X, k.Y)
	case "OKP":
		canonical = fmt.Sprintf(`{"crv":"%s","kty":"OKP","x":"%s"}`, k.Crv, k.X)
	}
	digest := sha256.Sum256([]byte(canonical))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

func verify(k key, signed string, signature []byte) bool {
	digest := func(h crypto.Hash) []byte { d := h.New(); d.Write([]byte(signed)); return d.Sum(nil) }
	ec := func(curve elliptic.Curve, h crypto.Hash) bool {
		public := ecdsa.PublicKey{Curve: curve, X: number(k.X), Y: number(k.Y)}
		size := (curve.Params().BitSize + 7) / 8
		if len(signature) != 2*size || !curve.IsOnCurve(public.X, public.Y) {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
		return ecdsa.Verify(&public, digest(h), r, s)
	}
	switch k.Alg {
	case "ES256":
		return ec(elliptic.P256(), crypto.SHA256)
	case "ES384":
		return ec(elliptic.P384(), crypto.SHA384)
	case "ES512":
		return ec(elliptic.P521(), crypto.SHA512)
	case "RS256":
		public := rsa.PublicKey{N: number(k.N), E: int(number(k.E).Int64())}
		return rsa.VerifyPKCS1v15(&public, crypto.SHA256, digest(crypto.SHA256), signature) == nil
	case "EdDSA":
		return ed25519.Verify(bytes(k.X), []byte(signed), signature)
	}
	return false
}

func main() {
	var set struct{ Keys []key }
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(text, &set); err != nil {
		panic(err)
	}
	byID := map[string]key{}
	for _, k := range set.Keys {
		if thumbprint(k) != k.Kid || k.Use != "sig" {
			panic("kid is not the thumbprint of the key, or use is not sig")
		}
		byID[k.Kid] = k
	}
	tokens, err := os.Open(os.Args[2])
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(tokens)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		parts := strings.Split(strings.TrimSpace(lines.Text()), ".")
		var header struct{ Alg, Kid, Typ string }
		if err := json.Unmarshal(bytes(parts[0]), &header); err != nil {
			panic(err)
		}
		k, found := byID[header.Kid]
		if !found || k.Alg != header.Alg || header.Typ != "JWT" {
			panic("no such key")
		}
		signature, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || !verify(k, parts[0]+"."+parts[1], signature) {
			fmt.Println(header.Alg, "bad")
			continue
		}
		var claims struct {
			Sub string
			Exp int64
		}
		if err := json.Unmarshal(bytes(parts[1]), &claims); err != nil || claims.Exp == 0 {
			panic(err)
		}
		fmt.Println(header.Alg, "good", claims.Sub)
	}
}
