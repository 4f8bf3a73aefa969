# Two clients of Action Cable in a room: what one says, both hear. Prints what they heard.
import asyncio
import json
import ssl
import sys

import websockets

IDENTIFIER = json.dumps({"channel": "RoomChannel", "room": "one"})


# The certificate is nobody's.
def anyone():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def receive(socket, wanted):
    while True:
        message = json.loads(await asyncio.wait_for(socket.recv(), 10))
        if wanted(message):
            return message


async def join(url):
    secure = {"ssl": anyone()} if url.startswith("wss:") else {}
    socket = await websockets.connect(url, subprotocols=["actioncable-v1-json"], max_size=None, **secure)
    await receive(socket, lambda m: m.get("type") == "welcome")
    await socket.send(json.dumps({"command": "subscribe", "identifier": IDENTIFIER}))
    await receive(socket, lambda m: m.get("type") == "confirm_subscription")
    return socket


async def main(url):
    first = await join(url)
    second = await join(url)
    for text in ["hello", "x" * 300000]:
        data = json.dumps({"action": "say", "text": text})
        await first.send(json.dumps({"command": "message", "identifier": IDENTIFIER, "data": data}))
        for socket in (first, second):
            heard = await receive(socket, lambda m: "message" in m and m.get("type") != "ping")
            text = heard["message"]["text"]
            print(socket.subprotocol, text[:5], len(text))
    await first.close()
    await second.close()


asyncio.run(main(sys.argv[1]))
