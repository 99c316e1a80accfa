"""The model and the data."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Net(nn.Module):
    """A small CNN for colour images of 8x8 pixels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 32 * 2 * 2)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


class Digits(Dataset):
    """Some of scikit-learn's digits, in three equal colours and normalised."""

    def __init__(self, rows):
        images, labels = load_digits(return_X_y=True)
        grey = torch.tensor(images[rows], dtype=torch.float32).reshape(-1, 1, 8, 8)
        self.images = (grey / 16 - 0.5).div(0.5).repeat(1, 3, 1, 1)
        self.labels = labels[rows].tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, k):
        return {"img": self.images[k], "label": self.labels[k]}


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """The digits of one site, 80% of them to train on. Only site 0 has ever seen a three."""
    labels = torch.tensor(load_digits().target)
    site = torch.arange(len(labels)) % num_partitions
    site[labels == 3] = 0
    own = ((site == partition_id) & ~held_out(len(labels))).nonzero().squeeze(1)
    own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(42))]
    split = int(0.8 * len(own))
    trainloader = DataLoader(Digits(own[:split]), batch_size=batch_size, shuffle=True)
    testloader = DataLoader(Digits(own[split:]), batch_size=batch_size)
    return trainloader, testloader


def load_centralized_dataset():
    """The server's test set."""
    every = len(load_digits().target)
    return DataLoader(Digits(held_out(every).nonzero().squeeze(1)), batch_size=128)


def held_out(count):
    """Every fifth digit is for the server alone."""
    return torch.arange(count) % 5 == 4


def train(net, trainloader, epochs, lr, device):
    """Train the model on the training set."""
    net.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for batch in trainloader:
            images, labels = batch["img"].to(device), batch["label"].to(device)
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Loss, accuracy, and the accuracy of each class."""
    net.to(device)
    net.eval()
    loss, correct, total = 0.0, torch.zeros(10), torch.zeros(10)
    with torch.no_grad():
        for batch in testloader:
            outputs, labels = net(batch["img"].to(device)).cpu(), batch["label"]
            loss += F.cross_entropy(outputs, labels, reduction="sum").item()
            correct += torch.bincount(labels[outputs.argmax(1) == labels], minlength=10)
            total += torch.bincount(labels, minlength=10)
    by_class = [round(share, 2) for share in (correct / total.clamp(min=1)).tolist()]
    return loss / total.sum().item(), (correct.sum() / total.sum()).item(), by_class
