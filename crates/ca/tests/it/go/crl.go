// Reads a CRL with Go's crypto/x509: prints its number and the serial numbers in it, if its CA signed it.
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

func block(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(text)
	return block.Bytes
}

func main() {
	ca, err := x509.ParseCertificate(block(os.Args[1]))
	if err != nil {
		panic(err)
	}
	list, err := x509.ParseRevocationList(block(os.Args[2]))
	if err != nil {
		panic(err)
	}
	if err := list.CheckSignatureFrom(ca); err != nil {
		panic(err)
	}
	fmt.Println("number", list.Number)
	for _, entry := range list.RevokedCertificateEntries {
		fmt.Printf("%032x\n", entry.SerialNumber)
	}
}
