"""Bulk data through cat, both ways at once, until there were so many key exchanges."""
import sys, warnings
warnings.simplefilter("ignore")
import asyncio, asyncssh

port, user, key, count, each = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
rekeys = -1
send_newkeys = asyncssh.connection.SSHConnection.send_newkeys

def counted(self, *arguments, **named):
    global rekeys
    rekeys += 1
    return send_newkeys(self, *arguments, **named)

asyncssh.connection.SSHConnection.send_newkeys = counted

async def main():
    async with asyncssh.connect("127.0.0.1", port, username=user, client_keys=[(key, key + "-cert.pub")],
                                known_hosts=None, agent_path=None, rekey_bytes=each) as connection:
        process = await connection.create_process("cat", encoding=None)
        block = bytes(range(256)) * 128

        async def send():
            sent = 0
            while rekeys < count:
                process.stdin.write(block)
                await process.stdin.drain()
                sent += len(block)
            process.stdin.write_eof()
            return sent

        sender = asyncio.ensure_future(send())
        received = 0
        while True:
            piece = await process.stdout.read(1 << 16)
            if not piece:
                break
            at = received % 256
            assert piece == (block * (2 + len(piece) // len(block)))[at : at + len(piece)], "other bytes came back"
            received += len(piece)
        sent = await sender
        assert received == sent, f"{received} of {sent} bytes came back"
        result = await process.wait()
        assert result.exit_status == 0
    print(rekeys, received, "asyncssh", asyncssh.__version__)

asyncio.run(main())
